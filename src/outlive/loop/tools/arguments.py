"""What a model wrote as a tool's arguments, against what the tool takes. Pure.

What does not fit comes back as words that the model can mend: which field, and what was expected.
"""

from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, JsonValue, ValidationError

from outlive.conversation.events import ToolCall
from outlive.loop.tools.port import ToolResult
from outlive.toolkit.schema import without_titles

PATH_LIMIT = 4_095  # bytes, as Linux has it
_SHOWN_ERRORS = 10


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character, which no program can be given")
    return text


def _check_path(path: str) -> str:
    if len(path.encode("utf-8", "replace")) > PATH_LIMIT:
        raise ValueError(f"is longer than {PATH_LIMIT} bytes")
    return path


Text = Annotated[str, AfterValidator(_check_text)]
Path = Annotated[str, AfterValidator(_check_text), AfterValidator(_check_path)]

A = TypeVar("A", bound=Arguments)


def schema_of(arguments: type[Arguments]) -> dict[str, JsonValue]:
    """The JSON schema of them, without what only pydantic has use for."""
    schema = cast("dict[str, JsonValue]", without_titles(arguments.model_json_schema()))
    schema.pop("description", None)  # of the class, for us
    return schema


def parse(arguments: type[A], call: ToolCall) -> A | ToolResult:
    """The arguments, or the rejection that says what is wrong with them."""
    if call.error is not None:
        return rejected_arguments(arguments, call.name, [call.error])
    try:
        return arguments.model_validate(call.arguments)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(str(part) for part in each['loc']) or 'arguments'}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)[:_SHOWN_ERRORS]
        ]
        return rejected_arguments(arguments, call.name, wrong)


def rejected_arguments(arguments: type[Arguments], name: str, wrong: list[str]) -> ToolResult:
    lines = [f"These arguments do not fit {name!r}; nothing was done."]
    lines += [f"- {each}" for each in wrong]
    lines += [f"It takes: {describe(arguments)}."]
    return ToolResult("rejected", "\n".join(lines))


def describe(arguments: type[Arguments]) -> str:
    """Its fields in one line: `path (string), limit (integer, optional)`."""
    schema = arguments.model_json_schema()
    required = set(schema.get("required", ()))
    return ", ".join(
        f"{name} ({_type_of(field)}{'' if name in required else ', optional'})"
        for name, field in schema.get("properties", {}).items()
    )


def _type_of(field: dict[str, Any]) -> str:
    if "type" in field:
        return str(field["type"])
    kinds = [str(each["type"]) for each in field.get("anyOf", ()) if each.get("type") not in (None, "null")]
    return " or ".join(kinds) or "value"
