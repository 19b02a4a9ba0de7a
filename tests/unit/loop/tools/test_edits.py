"""What an edit comes to, and which lines of a file are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.loop.tools.edits import EditRefusal, edited, lines_of


def test_an_edit_changes_the_one_place_that_it_names_and_keeps_every_other_byte() -> None:
    before = b"\xff one\r\n two \xfe"
    assert edited(before, "one", "1", is_all=False) == b"\xff 1\r\n two \xfe"


@pytest.mark.parametrize(
    ("before", "old", "new", "told"),
    [
        (b"a b a", "a", "c", "2 times"),
        (b"a b a", "x", "c", "is not in it"),
        (b"a", "a", "a", "the same"),
        (b"one\r\ntwo\r\n", "one\ntwo", "x", "CR LF"),
        (b"a" * 1_000_000, "a", "b" * 1_000, "too long"),
    ],
)
def test_an_edit_that_cannot_be_meant_says_why(before: bytes, old: str, new: str, told: str) -> None:
    refused = edited(before, old, new, is_all=told == "too long")
    assert isinstance(refused, EditRefusal)
    assert told in refused.why


@given(st.text(), st.text(min_size=1), st.text())
def test_an_edit_of_all_places_is_what_replacing_text_is(text: str, old: str, new: str) -> None:
    after = edited(text.encode("utf-8", "replace"), old, new, is_all=True)
    if isinstance(after, bytes):
        assert after == text.encode().replace(old.encode(), new.encode())
    else:
        assert old == new or old.encode() not in text.encode()


@given(st.text(alphabet="a\n\r\x0c\u2028"), st.integers(1, 4))
def test_parts_of_a_file_are_all_of_it_in_order(text: str, limit: int) -> None:
    parts, first = "", 1
    while (part := lines_of(text, first, limit)).text:
        assert part.text.count("\n") <= limit
        parts += part.text
        first += limit
    assert parts == text


def test_what_is_not_shown_of_a_file_is_said() -> None:
    assert lines_of("a\nb\nc\n", 1, 2) == ("a\nb\n", "Lines 1 to 2 of 3; go on with offset=3.")
    assert lines_of("a\nb\nc", 3, 9) == ("c", "Lines 3 to 3 of 3.")
    assert lines_of("a\nb\n", 1, 2) == ("a\nb\n", "")
    assert lines_of("a\n", 5, 1) == ("", "The file has 1 lines.")
    assert lines_of("", 1, 1) == ("", "The file is empty.")
