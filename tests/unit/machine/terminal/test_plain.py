"""Plain text of a terminal's output: what a reader sees, with nothing in it that could do anything."""

import re
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.machine.terminal.plain import plain_text

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BITS = st.sampled_from(
    [
        b"\x1b",
        b"[",
        b"]",
        b"\x1b]",
        b"\x1bP",
        b"\x07",
        b"\x1b\\",
        b"\r",
        b"\n",
        b"\b",
        b"K",
        b"31m",
        b"\xc2\x9b",
        b"abc",
    ]
)


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        (b"plain\r\ntext\r\n", "plain\ntext\n"),
        (b"\x1b[1;31mred\x1b[0m and \x1b[38;2;1;2;3mmore", "red and more"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        (b"\x1bP1$r0m\x1b\\a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d", "abcd"),
        (b"\x1b(B\x1b=\x1b7a\x1b#8b\x1bc", "ab"),
        (b" 10%\r 50%\r100%\r\ndone", "100%\ndone"),
        (b"long line\rshort", "shortline"),
        (b"long line\r\x1b[Kshort", "short"),
        (b"long line\x1b[2Kx", "x"),
        (b"mistakk\b\x1b[Ke\b\be", "mistaee"),
        (b"\b\bab\b\b\b\bc", "cb"),
        (b"a\x00\x07\x0e\x7fb\xc2\x85c", "abc"),
        (b"tab\there \xc3\xa4 \xff", "tab\there ä �"),
        (b"broken off \x1b]0;title without an end", "broken off "),
        (b"broken off \x1b[12;", "broken off "),
        (b"one\x1b]0;cut\x1b[1mtwo", "onetwo"),
    ],
)
def test_what_is_seen_stays_and_the_rest_goes(printed: bytes, seen: str) -> None:
    assert plain_text(printed) == seen


@given(st.lists(BITS | st.binary(max_size=5), max_size=40).map(b"".join))
def test_no_control_character_gets_through(printed: bytes) -> None:
    assert not CONTROLS.search(plain_text(printed))


@pytest.mark.parametrize("piece", [b"\x1b[", b"\x1b]0;", b"\x1bP", b"\r", b"a\b", b"\x1b[1", b"x\r\x1b[K", b"ab\r"])
def test_no_output_takes_more_than_its_length_in_time(piece: bytes) -> None:
    # Quadratic would take minutes here.
    started = perf_counter()
    plain_text(piece * (1_000_000 // len(piece)))
    assert perf_counter() - started < 20
