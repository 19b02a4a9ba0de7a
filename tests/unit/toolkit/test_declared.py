"""Functions as tools: what a signature says of the arguments, and what cannot be a tool."""

import enum
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from outlive import ToolContext, tool
from outlive.base import InvalidError
from outlive.toolkit.declared import declaration_of, fit


class Place(BaseModel):
    """Where."""

    city: str
    title: str = "none"


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


@tool
async def weather(
    place: Place,
    on: Annotated[date, Field(description="The day.")],
    context: ToolContext,
    unit: Unit = Unit.CELSIUS,
    json: bool = False,
    kinds: list[Literal["rain", "wind"]] | None = None,
) -> str:
    """The weather somewhere.

    On some day."""
    return "fine"


def test_a_signature_gives_the_schema_and_the_arguments_it_is_called_with() -> None:
    declared = declaration_of(weather)
    assert (declared.name, declared.description) == ("weather", "The weather somewhere.\n\nOn some day.")
    assert (declared.context, declared.is_async, declared.is_idempotent, declared.runs) == (
        "context",
        True,
        False,
        "in_turn",
    )
    properties: Any = declared.parameters["properties"]
    assert list(properties) == ["place", "on", "unit", "json", "kinds"]
    assert properties["on"] == {"description": "The day.", "format": "date", "type": "string"}
    assert declared.parameters["required"] == ["place", "on"]
    assert declared.parameters["additionalProperties"] is False
    definitions: Any = declared.parameters["$defs"]
    assert definitions["Place"]["properties"] == {
        "city": {"type": "string"},
        "title": {"default": "none", "type": "string"},
    }
    fitted = fit(declared, {"place": {"city": "Rome"}, "on": "2026-01-02", "unit": "fahrenheit", "kinds": ["rain"]})
    assert fitted == {
        "place": Place(city="Rome"),
        "on": date(2026, 1, 2),
        "unit": Unit.FAHRENHEIT,
        "json": False,
        "kinds": ["rain"],
    }


def test_arguments_that_do_not_fit_are_told_field_by_field() -> None:
    with pytest.raises(InvalidError) as caught:
        fit(declaration_of(weather), {"place": {}, "on": "x", "never": 1})
    assert caught.value.code == "tool.arguments"
    for told in ("'weather'", "nothing was done", "- place.city: Field required", "- on: ", "- never: Extra inputs"):
        assert told in caught.value.message


def test_a_tool_stays_the_function_that_it_was_and_its_decorator_says_the_rest() -> None:
    @tool(name="add-up", description="Adds.", idempotent=True, parallel=True, timeout_s=5)
    def add(a: int, b: int = 2) -> int:
        return a + b

    assert add(1) == 3
    declared = declaration_of(add)
    assert (declared.name, declared.description, declared.timeout_s) == ("add-up", "Adds.", 5.0)
    assert (declared.is_async, declared.is_idempotent, declared.runs) == (False, True, "parallel")
    assert fit(declared, {"a": 1}) == {"a": 1, "b": 2}


def bare(a) -> None:  # type: ignore[no-untyped-def]
    """Says nothing of a."""


def many(*names: str) -> None:
    """Takes any number."""


def positional(a: int, /) -> None:
    """Has a parameter without a name."""


def unreadable(a: Callable[[], int]) -> None:
    """Takes what is no JSON."""


def unknown(a: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Takes what is not there."""


def another_context(context: str) -> None:
    """Takes another context."""


def silent(a: int) -> None: ...


def yields() -> Iterator[int]:
    """Gives out numbers."""
    yield 1


async def yields_later() -> AsyncIterator[int]:
    """Gives out numbers."""
    yield 1


def of_any_class(a: "Strange") -> None:
    """Takes an object."""


class Strange:
    pass


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (bare, "'a' without an annotation"),
        (many, "'*names: str'"),
        (positional, "has to have a name of its own"),
        (unreadable, "cannot be described as JSON"),
        (unknown, "Nowhere"),
        (another_context, "annotate it so, or rename it"),
        (silent, "does not say what it does"),
        (yields, "yields"),
        (yields_later, "yields"),
        (of_any_class, "cannot be read from JSON"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_its_name_and_the_reason(function: Callable[..., Any], told: str) -> None:
    with pytest.raises(InvalidError, match=r"The tool .*\.") as caught:
        declaration_of(tool(function))
    assert caught.value.code == "tool.declared"
    assert function.__name__ in caught.value.message
    assert told in caught.value.message


@pytest.mark.parametrize("name", ["a__b", "", " a", "a.b", "x" * 65, "ü", "_a"])
def test_a_name_is_one_that_every_provider_takes(name: str) -> None:
    def one() -> None:
        """One."""

    one.__name__ = name
    with pytest.raises(InvalidError, match="cannot be called"):
        declaration_of(tool(one))


@pytest.mark.parametrize("timeout_s", [0, -1, 86_401])
def test_a_timeout_is_bounded(timeout_s: float) -> None:
    def one() -> None:
        """One."""

    with pytest.raises(InvalidError, match="timeout"):
        declaration_of(tool(timeout_s=timeout_s)(one))


def test_a_decorator_takes_nothing_that_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="idempotant"):
        tool(idempotant=True)  # type: ignore[call-overload]
