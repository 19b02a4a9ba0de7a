"""Reading a body: JSON that can be kept comes through unchanged, and everything else is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.api.body import DEPTH_LIMIT, VALUES_LIMIT, parse_object
from outlive.base import InvalidError

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(st.dictionaries(st.text(), VALUES), st.booleans())
def test_an_object_comes_through_unchanged(value: dict[str, Any], is_ascii: bool) -> None:
    assert parse_object(json.dumps(value, ensure_ascii=is_ascii).encode()) == value


@given(st.binary() | st.text().map(str.encode) | VALUES.map(lambda value: json.dumps(value).encode()[:-1]))
def test_whatever_comes_is_an_object_or_refused(raw: bytes) -> None:
    try:
        assert isinstance(parse_object(raw), dict)
    except InvalidError as error:
        refusal = error
        assert refusal.code == "request.malformed"


def _deep(depth: int) -> bytes:
    return (b'{"a":' * depth) + b"1" + b"}" * depth


def test_nesting_is_taken_up_to_the_limit() -> None:
    assert parse_object(_deep(DEPTH_LIMIT))
    for depth in (DEPTH_LIMIT + 1, 900, 100_000):
        with pytest.raises(InvalidError, match="nested deeper"):
            parse_object(_deep(depth))


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_an_integer_beyond_64_bits_is_refused_and_not_rounded(number: int) -> None:
    with pytest.raises(InvalidError, match="64 bits"):
        parse_object(json.dumps({"a": number}).encode())


@pytest.mark.parametrize("raw", [b'{"a": 1e999}', b'{"a": -1e999}', b'{"a": NaN}', b'{"a": Infinity}'])
def test_a_number_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidError):
        parse_object(raw)


@pytest.mark.parametrize("half", ["\ud800", "a\udfff", "\udc00\ud800"])
def test_half_of_a_surrogate_pair_is_refused_wherever_it_stands(half: str) -> None:
    for value in ({"a": half}, {half: 1}, {"a": [{"b": [half]}]}):
        with pytest.raises(InvalidError, match="surrogate"):
            parse_object(json.dumps(value).encode())
    assert parse_object(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


@pytest.mark.parametrize("item", ["1", '""', "[]", "{}", "null", '{"a": 1}', '"[,{"', '"\\\\"', '"\\""'])
def test_values_are_counted_and_what_is_in_strings_is_not(item: str) -> None:
    each = 2 if item == '{"a": 1}' else 1
    room = (VALUES_LIMIT - 2) // each  # besides the object and its list
    assert parse_object(f'{{"a": [{",".join([item] * room)}]}}'.encode())
    for count in (room + 1, 3 * room, 10 * room):
        with pytest.raises(InvalidError) as refused:
            parse_object(f'{{"a": [{",".join([item] * count)}]}}'.encode())
        assert refused.value.code == "request.too_many_values"
