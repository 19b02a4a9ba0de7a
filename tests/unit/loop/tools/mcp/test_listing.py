"""What a server offers, as a model is told it: names that providers take, and bounds."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.loop.tools.mcp.listing import (
    DEPTH_LIMIT,
    SCHEMAS_LIMIT,
    TOOLS_LIMIT,
    RawTool,
    make_listing,
    server_of,
)

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
AT = "2026-01-02T00:00:00.000000Z"


def listed(*raws: RawTool, is_cut: bool = False) -> Any:
    return make_listing("srv", raws, is_cut=is_cut, at=AT)


def test_tools_are_told_by_server_and_name_in_one_order_with_their_hints() -> None:
    found = listed(RawTool("b", "B.", OBJECT, is_idempotent=True), RawTool("a", "", OBJECT, is_read_only=True))
    assert [(each.name, each.description, each.runs, each.is_safe) for each in found.tools] == [
        ("srv__a", "a", "parallel", True),
        ("srv__b", "B.", "in_turn", True),
    ]
    assert (found.notes, found.at) == ((), AT)
    assert server_of("srv__a__b") == "srv"
    assert server_of("shell") is None


@given(st.lists(st.text(min_size=1, max_size=200), max_size=40, unique=True))
def test_whatever_tools_are_called_their_names_are_good_and_different(names: list[str]) -> None:
    found = listed(*(RawTool(name, "x", OBJECT) for name in names))
    told = [each.name for each in found.tools]
    assert len(set(told)) == len(told) == len(names)
    assert all(re.fullmatch(r"srv__[A-Za-z0-9_-]{1,59}", name) and len(name) <= 64 for name in told)
    assert {each.original for each in found.tools} == set(names)


def test_a_name_that_is_listed_again_is_left_out_and_said() -> None:
    found = listed(*(RawTool(name, "x", OBJECT) for name in ("a", "a.b", "a", "a", "a.b")))
    assert [each.original for each in found.tools] == ["a", "a.b"]
    assert len({each.name for each in found.tools}) == 2
    assert "3 tools of the MCP server 'srv' are left out, since their names are taken" in found.notes[0]


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"p": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "object", "x": "y" * 40_000}, "too long"),
        (deep(DEPTH_LIMIT), "too deep"),
        (deep(100_000), "too deep"),
        ({"type": "array"}, "no object"),
        ([], "no object"),
        (None, "no object"),
    ],
)
def test_a_schema_that_no_model_could_use_is_left_out_and_said(schema: Any, why: str) -> None:
    found = listed(RawTool("good", "x", OBJECT), RawTool("bad", "x", schema))
    assert [each.original for each in found.tools] == ["good"]
    [note] = found.notes
    assert why in note
    assert "'bad'" in note


def test_thousands_of_tools_and_endless_texts_are_bounded_and_said() -> None:
    many = listed(*(RawTool(f"t{n:04}", "d" * 100_000, OBJECT) for n in range(3_000)), is_cut=True)
    assert len(many.tools) == TOOLS_LIMIT
    assert all(len(each.description) < 5_000 for each in many.tools)
    assert ["2900 tools" in many.notes[0], "more tools than were looked at" in many.notes[1]] == [True, True]
    assert sum(len(note) for note in many.notes) < 1_000
    wide = {"type": "object", "x": "y" * 30_000}
    assert len(listed(*(RawTool(f"w{n}", "x", wide) for n in range(50))).tools) <= SCHEMAS_LIMIT // 30_000
