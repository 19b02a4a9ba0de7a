"""Marks in a terminal's output: found whole however it is cut, bounded, and never a reason to fail."""

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.machine.terminal.marks import (
    BELL_EVERY,
    COMMANDS_LIMIT,
    SEQUENCE_LIMIT,
    TITLE_LIMIT,
    CommandRun,
    Commands,
    FoundMark,
    Marks,
)

SESSION = (
    b"\x1b]133;A\x07$ \x1b]133;B\x07make all\r\n\x1b]633;E;make all\\x3b echo \\\\n\x07\x1b]133;C\x07"
    b"\x1b[31mred\x1b[0m\x07done\r\n\x1b]133;D;2\x07\x1b]0;a title\x1b\\"
)

BITS = st.sampled_from(
    [
        *(b"\x1b", b"\x07", b"\x18", b"\x9c", b"\\", b"]", b"P", b";", b"0", b"text", b"\xc3", b"\xa4", b"\x1b]"),
        *(b"\x1b]133;A", b"\x1b]133;D;1\x07", b"\x1b]633;E;ls\\x", b"\x1b]2;t", b"\x1bP", b"\x1b\\", b"\x1b[0m"),
    ]
)


def found_in(data: bytes, offset: int = 0) -> list[FoundMark]:
    return Marks().feed(offset, data)


def in_pieces(data: bytes, cuts: list[int]) -> list[FoundMark]:
    marks = Marks()
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [mark for start, end in itertools.pairwise(bounds) for mark in marks.feed(start, data[start:end])]


def test_a_command_is_found_with_its_line_its_output_and_its_exit_code() -> None:
    commands = Commands()
    commands.take(found_in(SESSION))
    [run] = commands.runs
    assert run.command_line == "make all; echo \\n"
    assert SESSION[run.output_start : run.output_end] == b"\x1b[31mred\x1b[0m\x07done\r\n"
    assert SESSION[run.start :].startswith(b"make all\r\n")
    assert run.exit_code == 2


def test_the_bell_rings_and_the_bel_that_ends_a_sequence_does_not() -> None:
    assert [mark.kind for mark in found_in(SESSION)] == [
        *("prompt", "prompt_end", "command_line", "started", "bell", "ended", "title"),
    ]
    assert found_in(b"\x1bPq\x07\x07\x1b\\a\x07") == [FoundMark("bell", 8, 9)]  # those inside a DCS ring nothing
    assert [mark.start for mark in found_in(b"\x1b[3\x071m")] == [3]


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_gives_the_same_marks(cuts: list[int]) -> None:
    assert in_pieces(SESSION, cuts) == found_in(SESSION)


@given(st.lists(BITS | st.binary(max_size=4), max_size=40).map(b"".join), st.lists(st.integers(0, 500), max_size=12))
def test_any_cut_of_any_bytes_gives_the_same_marks(data: bytes, cuts: list[int]) -> None:
    whole = found_in(data)
    assert in_pieces(data, cuts) == whole
    assert in_pieces(data, list(range(len(data)))) == whole
    assert all(0 <= mark.start < mark.end <= len(data) for mark in whole)
    Commands().take(whole)


@pytest.mark.parametrize(
    "data",
    [
        *(b"\x1b]133;A\x18", b"\x1b]133;A\x1a\x07"[:-1], b"\x1b]133;A", b"\x1b]133;A\x1b[m", b"\x1b]133;Z\x07"),
        *(b"\x1b]133\x07", b"\x1b]633;P;Cwd=/\x07", b"\x1b]52;c;aGk=\x07", b"\x1bP133;A\x1b\\", b"]133;A\x07"[:-1]),
    ],
)
def test_what_was_broken_off_or_is_something_else_is_no_mark(data: bytes) -> None:
    assert found_in(data) == []


def test_a_sequence_begins_at_the_escape_that_breaks_another_off() -> None:
    assert [mark.kind for mark in found_in(b"\x1b]0;lost\x1b]133;A\x07\x1bPx\x1b]133;B\x07")] == [
        "prompt",
        "prompt_end",
    ]


def test_after_a_hole_nothing_goes_on_that_was_begun_before_it() -> None:
    marks = Marks()
    assert marks.feed(0, b"\x1b]0;be") == []
    assert marks.feed(100, b"fore\x07") == [FoundMark("bell", 104, 105)]


def test_a_title_has_no_control_characters_and_a_bound() -> None:
    [mark] = found_in(b"\x1b]2;a\nb\x01c\xe2\x80\xaed\xff" + b"x" * 1000 + b"\x07")
    assert mark.text.startswith("abcd�x")
    assert len(mark.text) == TITLE_LIMIT


def test_a_sequence_without_an_end_costs_no_more_than_its_bound() -> None:
    marks = Marks()
    piece = b"x" * 4096
    marks.feed(0, b"\x1b]0;")
    tracemalloc.start()
    try:
        for number in range(2_000):
            assert marks.feed(4 + number * 4096, piece) == []
        assert tracemalloc.get_traced_memory()[1] < 4 * SEQUENCE_LIMIT
    finally:
        tracemalloc.stop()
    assert marks.feed(4 + 2_000 * 4096, b"\x07ok\x07") == [FoundMark("bell", 8_192_007, 8_192_008)]


def test_of_a_flood_of_bells_few_are_told() -> None:
    assert [mark.start for mark in found_in(b"\x07" * (3 * BELL_EVERY))] == [0, BELL_EVERY, 2 * BELL_EVERY]


@pytest.mark.parametrize(
    ("said", "code"),
    [(b"D;0", 0), (b"D;130;aid=1", 130), (b"D;-1", -1), (b"D", None), (b"D;x", None), (b"D;" + b"9" * 50, None)],
)
def test_an_exit_code_is_a_small_number_or_unknown(said: bytes, code: int | None) -> None:
    assert [mark.exit_code for mark in found_in(b"\x1b]133;" + said + b"\x07")] == [code]


def mark(kind: str, at: int, **more: object) -> FoundMark:
    return FoundMark(kind, at, at + 1, **more)  # type: ignore[arg-type]


def test_an_empty_line_at_the_prompt_is_no_command() -> None:
    commands = Commands()
    commands.take([mark("prompt", 0), mark("prompt_end", 2), mark("ended", 5, exit_code=0), mark("prompt", 6)])
    assert not commands.runs
    assert not commands.is_at_prompt
    commands.take([mark("prompt_end", 8)])
    assert commands.is_at_prompt


def test_a_command_that_runs_has_no_end_and_a_prompt_without_a_word_of_its_end_ends_it() -> None:
    commands = Commands()
    commands.take([mark("prompt_end", 2), mark("started", 5)])
    assert commands.running == CommandRun(3, 6)
    commands.take([mark("prompt", 9)])
    assert list(commands.runs) == [CommandRun(3, 6, 9)]
    assert commands.running is None
    commands.take([mark("started", 10), mark("started", 20), mark("ended", 30, exit_code=1)])
    assert list(commands.runs)[1:] == [CommandRun(10, 11, 20), CommandRun(20, 21, 30, 1)]


def test_the_newest_commands_are_remembered() -> None:
    commands = Commands()
    for at in range(0, 20 * COMMANDS_LIMIT, 10):
        commands.take([mark("started", at), mark("ended", at + 5, exit_code=at)])
    assert len(commands.runs) == COMMANDS_LIMIT
    assert commands.runs[-1].exit_code == 20 * COMMANDS_LIMIT - 10
