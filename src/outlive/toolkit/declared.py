"""Declaring a tool: a function becomes one by `@tool`, typed by its signature.

Rule 1: the function stays what it is. What was declared is worked out when the tools are loaded (`declaration_of`):
        only then are all names of its annotations known.
Rule 2: a signature that no JSON object can be fitted to is refused then, with the function and the parameter named.
"""

import inspect
import re
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, cast, overload

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from outlive.base import ConflictError, InvalidError
from outlive.toolkit.context import ToolContext
from outlive.toolkit.schema import without_titles

Runs = Literal["parallel", "in_turn"]

TIMEOUT_S = 600.0
TIMEOUT_MOST_S = 86_400.0
DESCRIPTION_LIMIT = 8 * 1024  # characters
SCHEMA_LIMIT = 32 * 1024  # characters, as JSON
_NAME = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9-])*_?")
_NAME_LIMIT = 64
_MARK = "__outlive_tool__"
_SHOWN_ERRORS = 10

F = TypeVar("F", bound=Callable[..., Any])


class ToolError(ConflictError):
    """Raised by a tool that could not do it: the model is told these words, and nothing else."""

    def __init__(self, message: str) -> None:
        super().__init__("tool.failed", message)


class _Asked(NamedTuple):
    """What was written in the decorator."""

    name: str | None = None
    description: str | None = None
    idempotent: bool = False
    parallel: bool = False
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A tool as it is loaded. `arguments` has the fields of the signature, as aliases."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    function: Callable[..., Any]
    arguments: type[BaseModel]
    context: str | None  # the parameter that takes it
    is_async: bool
    is_idempotent: bool
    runs: Runs
    timeout_s: float


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    parallel: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, **asked: Any) -> F | Callable[[F], F]:
    """Make a function a tool that models may call: sync or async, with annotated parameters and a docstring.

    `idempotent`: it may be run again with the same effect id, and then does nothing twice. Without, it is never run a
    second time: if its worker dies, what came of it is told as unknown. `parallel`: it does not matter in which order
    calls of it and of others run. `timeout_s`: how long one call may take.
    """
    unknown = set(asked) - set(_Asked._fields)
    if unknown:
        raise TypeError(f"@tool takes {', '.join(_Asked._fields)}; not {sorted(unknown)[0]!r}")

    def mark(each: F) -> F:
        setattr(each, _MARK, _Asked(**asked))
        return each

    return mark if function is None else mark(function)


def is_tool(thing: object) -> bool:
    return isinstance(getattr(thing, _MARK, None), _Asked)


def declaration_of(function: Callable[..., Any]) -> DeclaredTool:
    """What its decorator and its signature say. `tool.declared` (invalid) for what cannot be a tool."""
    asked: _Asked = getattr(function, _MARK)
    if not inspect.isfunction(function):
        raise _wrong(function, "is not a function; @tool is for functions")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _wrong(function, "yields; a tool returns its result (context.say shows what comes before)")
    name = asked.name or function.__name__
    if not _NAME.fullmatch(name) or len(name) > _NAME_LIMIT:
        raise _wrong(
            function, f"cannot be called {name[:100]!r}: a name has 1 to 64 of a-z, A-Z, 0-9, '-' and single '_'"
        )
    if not 0 < asked.timeout_s <= TIMEOUT_MOST_S:
        raise _wrong(function, f"has a timeout of {asked.timeout_s} s; it has to be above 0 and at most a day")
    arguments, context = _arguments_of(function)
    return DeclaredTool(
        name=name,
        description=_description_of(function, asked),
        parameters=_schema_of(function, arguments),
        function=function,
        arguments=arguments,
        context=context,
        is_async=inspect.iscoroutinefunction(function),
        is_idempotent=asked.idempotent,
        runs="parallel" if asked.parallel else "in_turn",
        timeout_s=float(asked.timeout_s),
    )


def fit(declared: DeclaredTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the function is called with. `tool.arguments` (invalid) says what does not fit."""
    try:
        fitted = declared.arguments.model_validate(arguments)
    except ValidationError as error:
        wrong = [
            f"- {'.'.join(str(part) for part in each['loc']) or 'arguments'}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False, include_context=False)[:_SHOWN_ERRORS]
        ]
        lines = [f"These arguments do not fit {declared.name!r}; nothing was done.", *wrong]
        raise InvalidError("tool.arguments", "\n".join(lines)) from None
    fields = type(fitted).model_fields
    return {cast("str", field.alias): getattr(fitted, name) for name, field in fields.items()}


# ── the signature ──


def _arguments_of(function: Callable[..., Any]) -> tuple[type[BaseModel], str | None]:
    hints = _hints_of(function)
    context: str | None = None
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        name = parameter.name
        if hints.get(name) is ToolContext:
            context = name
            continue
        if name == "context":
            raise _wrong(function, "has a parameter 'context' that is no ToolContext: annotate it so, or rename it")
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _wrong(function, f"has the parameter {str(parameter)!r}; each has to have a name of its own")
        if name not in hints:
            raise _wrong(function, f"has the parameter {name!r} without an annotation, so nobody knows what it takes")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[f"p{number}"] = (hints[name], Field(default, alias=name))
    config = ConfigDict(extra="forbid")
    try:
        return create_model("Arguments", __config__=config, **fields), context
    except (PydanticUserError, TypeError) as error:
        raise _wrong(function, f"has a parameter that cannot be read from JSON: {_first_line(error)}") from None


def _hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise _wrong(function, f"has an annotation that cannot be read: {_first_line(error)}") from None


def _schema_of(function: Callable[..., Any], arguments: type[BaseModel]) -> dict[str, JsonValue]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a default that is no JSON is left out
            schema = cast("dict[str, JsonValue]", without_titles(arguments.model_json_schema()))
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise _wrong(function, f"has a parameter that cannot be described as JSON: {_first_line(error)}") from None
    schema.setdefault("properties", {})
    if len(str(schema)) > SCHEMA_LIMIT:
        raise _wrong(function, f"has a signature whose JSON schema is longer than {SCHEMA_LIMIT} characters")
    return schema


def _description_of(function: Callable[..., Any], asked: _Asked) -> str:
    text = (asked.description or inspect.getdoc(function) or "").strip()
    if not text:
        raise _wrong(function, "does not say what it does: give it a docstring, or a description")
    if len(text) > DESCRIPTION_LIMIT:
        raise _wrong(function, f"has a description of more than {DESCRIPTION_LIMIT} characters")
    return text


def _wrong(function: Callable[..., Any], what: str) -> InvalidError:
    where = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
    return InvalidError("tool.declared", f"The tool {where} {what}.")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300].rstrip(".")
