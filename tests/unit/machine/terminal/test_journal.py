"""The journal's format: what was written is read back, and whatever a crash leaves of it is read up to there."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import BrokenError, InvalidError, TerminalId
from outlive.machine.terminal.journal import (
    RECORD_LIMIT,
    Header,
    Input,
    Journal,
    Mark,
    Output,
    Record,
    encode,
    encode_header,
    encode_many,
    end_of,
    read_all,
    without_output,
)
from unit.machine.terminal.journals import AT, BOT, ONE_OF_EACH, SINCE_2, gap, held_by, printed, seam, typed

HEADER = Header(terminal=TerminalId("term_" + "c" * 32), n=3, offset=0, input_offset=0, generation=1, at=AT)
WHOLE = encode_header(HEADER) + encode_many((*ONE_OF_EACH, *SINCE_2))
GOLDEN = Path(__file__).parents[3] / "golden" / "terminals" / "journal1.bin"


def test_what_was_written_is_read_back() -> None:
    assert read_all(WHOLE) == Journal(HEADER, [*ONE_OF_EACH, *SINCE_2], len(WHOLE))


def test_a_journal_that_an_earlier_version_wrote_is_read_for_ever() -> None:
    assert read_all(GOLDEN.read_bytes()) == Journal(HEADER, list(ONE_OF_EACH), GOLDEN.stat().st_size)
    second = GOLDEN.with_name("journal2.bin")
    assert read_all(second.read_bytes()) == Journal(HEADER, [*ONE_OF_EACH, *SINCE_2], second.stat().st_size)


def test_cut_at_any_byte_all_records_before_it_are_read_and_nothing_else() -> None:
    start = len(encode_header(HEADER))
    ends = [start]
    for record in (*ONE_OF_EACH, *SINCE_2):
        ends.append(ends[-1] + len(encode(record)))
    for length in range(start, len(WHOLE)):
        journal = read_all(WHOLE[:length])
        whole = sum(end <= length for end in ends) - 1
        assert (len(journal.records), journal.valid_length) == (whole, ends[whole])


@pytest.mark.parametrize("length", range(0, len(encode_header(HEADER)), 7))
def test_without_a_whole_header_it_is_no_journal(length: int) -> None:
    with pytest.raises(BrokenError, match="damaged"):
        read_all(WHOLE[:length])


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_changed_byte_ends_the_journal_there_and_is_never_taken_for_something_else(place: int, change: int) -> None:
    content = bytearray(WHOLE)
    content[place] ^= change
    try:
        journal = read_all(bytes(content))
    except BrokenError:
        assert place < len(encode_header(HEADER))
        return
    written = [*ONE_OF_EACH, *SINCE_2]
    assert journal.records == written[: len(journal.records)]
    assert len(journal.records) < len(written)
    assert journal.valid_length <= place


@given(st.binary(max_size=300))
def test_any_bytes_after_a_record_are_at_most_cut_off(tail: bytes) -> None:
    content = encode_header(HEADER) + encode(ONE_OF_EACH[2])
    assert read_all(content + tail).records[0] == ONE_OF_EACH[2]


def test_another_version_is_not_guessed_at() -> None:
    with pytest.raises(BrokenError, match="newer version"):
        read_all(WHOLE[:9] + b"\x03" + WHOLE[10:])


def test_a_record_that_no_reader_would_take_is_not_written() -> None:
    encode(printed(0, b"x" * (RECORD_LIMIT - 16)))
    with pytest.raises(InvalidError, match="at most"):
        encode(printed(0, b"x" * RECORD_LIMIT))
    with pytest.raises(InvalidError, match="too long"):
        encode(Mark(AT, 0, "title", "x" * 70_000))


def test_where_output_and_input_end_is_told_with_seams_and_gaps() -> None:
    assert end_of(Journal(HEADER, [], 0)) == (0, 0)
    assert end_of(Journal(HEADER, [printed(0, b"abc"), typed(3, 0, b"xy")], 0)) == (3, 2)
    assert end_of(Journal(HEADER, [printed(0, b"abc"), seam(1, 50), gap(50, 60), printed(60, b"z")], 0)) == (61, 0)


def test_when_the_output_goes_a_gap_stands_for_it_and_what_was_typed_stays() -> None:
    records: list[Record] = [
        printed(0, b"ab"),
        printed(2, b"cd"),
        typed(4, 0, b"x", by=BOT),
        printed(4, b"ef"),
        held_by(BOT, 6),
    ]
    kept = without_output(records)
    assert [record for record in kept if isinstance(record, Input)] == [typed(4, 0, b"x", by=BOT)]
    assert [record.value for record in kept if isinstance(record, Mark)] == [{"from": 0, "to": 4}, {"from": 4, "to": 6}]
    assert not any(isinstance(record, Output) for record in kept)
    assert held_by(BOT, 6) in kept
    assert end_of(Journal(HEADER, kept, 0)) == (6, 1)
