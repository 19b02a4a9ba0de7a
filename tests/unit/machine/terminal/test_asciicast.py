"""Recordings as asciicast v3: any reader takes them, times add up, and who typed is told."""

import itertools
from collections.abc import Iterable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import PrincipalId
from outlive.machine.terminal.asciicast import Asciicast
from outlive.machine.terminal.journal import Actor, Mark, Output, Record, Resize, Snapshot
from unit.machine.terminal.asciicasts import Cast, read_cast
from unit.machine.terminal.journals import ADA, AT, BOT, ONE_OF_EACH, SINCE_2, after, gap, held_by, printed, seam, typed


def cast_of(records: Iterable[Record], **options: object) -> Cast:
    made = Asciicast(80, 24, **options)  # type: ignore[arg-type]
    lines = [line for record in records for line in made.lines(record)]
    lines += made.finish(AT)
    assert all(line.count(b"\n") == 1 for line in lines)
    return read_cast(b"".join(lines))


def exited(code: int | None, signal: int | None = None, at: float = 9) -> Mark:
    return Mark(after(at), 0, "exit", {"exit": code, "signal": signal})


def test_the_header_says_size_time_title_and_command() -> None:
    cast = cast_of([Resize(AT, 0, 120, 40), printed(0, b"x")], title="a \ud800 title\n", command=("bash", "-c", "ls"))
    assert cast.header == {
        "version": 3,
        "term": {"cols": 120, "rows": 40, "type": "xterm-256color"},
        "timestamp": int(AT.timestamp()),
        "title": "a ? title\n",
        "command": "bash -c ls",
    }
    assert cast.of("r") == []


def test_a_terminal_where_nothing_happened_is_a_header_alone() -> None:
    cast = cast_of([])
    assert cast.events == []
    assert cast.header["term"] == {"cols": 80, "rows": 24, "type": "xterm-256color"}


def test_one_of_each_kind_of_record_gives_what_any_reader_takes() -> None:
    cast = cast_of(ONE_OF_EACH)
    assert cast.of("o") == ["$ �\x00"]
    assert cast.of("i") == ["ls\r", "\x03"]
    assert cast.of("r") == ["200x60"]
    assert cast.of("x") == ["0"]
    assert cast.of("m") == [
        "lease: ada (person) (take)",
        "typing: ada (person)",
        "typing: bot (agent)",
        "lease: free (yield)",
        "seam: rolled back from offset 2 to 1000",
        "gap: output is missing from offset 1000 to 1010",
    ]


def test_whoever_types_is_named_before_the_first_key_and_at_every_change() -> None:
    keys = [(ADA, b"a"), (ADA, b"b"), (BOT, b"c"), (ADA, b"d")]
    cast = cast_of(typed(0, place, key, by=who) for place, (who, key) in enumerate(keys))
    typist, told = "", []
    for event in cast.events:
        if event.code == "m":
            typist = event.data
        else:
            told.append((typist, event.data))
    assert told == [
        *(("typing: ada (person)", "a"), ("typing: ada (person)", "b")),
        *(("typing: bot (agent)", "c"), ("typing: ada (person)", "d")),
    ]


def test_two_of_one_name_and_kind_are_two() -> None:
    other = Actor(PrincipalId("prin_other"), ADA.name, ADA.kind)
    assert len(cast_of([typed(0, 0, b"a"), typed(0, 1, b"b", by=other)]).of("m")) == 2


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=60))
def test_intervals_add_up_to_the_real_time(steps: list[int]) -> None:
    moments = list(itertools.accumulate(steps))
    cast = cast_of(printed(place, b"x", at=moment / 1_000_000) for place, moment in enumerate(moments))
    first = moments[0]
    assert [event.at for event in cast.events] == [Decimal(moment - first).scaleb(-6) for moment in moments]


def test_a_clock_that_was_set_back_stands_still_until_it_has_caught_up() -> None:
    cast = cast_of(printed(place, b"x", at=at) for place, at in enumerate([10, 12, 5, 11, 14]))
    assert [event.at for event in cast.events] == [0, 2, 2, 2, 4]


@given(st.text(max_size=60), st.lists(st.integers(0, 300), max_size=8))
def test_a_character_that_is_cut_between_two_records_is_put_together(text: str, cuts: list[int]) -> None:
    data = text.encode()
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    records = [printed(start, data[start:end]) for start, end in itertools.pairwise(bounds)]
    assert "".join(cast_of(records).of("o")) == text


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_whatever_was_printed_is_valid_and_what_is_no_utf8_is_replaced(pieces: list[bytes]) -> None:
    offsets = itertools.accumulate((len(piece) for piece in pieces), initial=0)
    records: list[Output] = [printed(offset, piece) for offset, piece in zip(offsets, pieces, strict=False)]
    cast = cast_of([*records, exited(0)])
    assert "".join(cast.of("o")) == b"".join(pieces).decode("utf-8", "replace")


def test_half_a_character_before_a_hole_is_not_joined_with_what_comes_after_it() -> None:
    assert "".join(cast_of([printed(0, b"a\xc3"), gap(2, 9), printed(9, b"\xa4b")]).of("o")) == "a��b"


@pytest.mark.parametrize(
    ("mark", "status"), [(exited(0), "0"), (exited(3), "3"), (exited(None, 9), "137"), (exited(None), "1")]
)
def test_the_exit_status_comes_last(mark: Mark, status: str) -> None:
    cast = cast_of([printed(0, b"x"), mark, printed(1, b"late", at=10)])
    assert (cast.events[-1].code, cast.events[-1].data) == ("x", status)


def test_a_snapshot_is_drawn_where_the_player_does_not_have_the_screen_and_only_there() -> None:
    drawn = Snapshot(AT, 2, 80, 24, b"<screen>")
    assert cast_of([printed(0, b"ab"), drawn]).of("o") == ["ab"]
    assert cast_of([drawn, printed(2, b"c")]).of("o") == ["\x1bc<screen>", "c"]
    back = Snapshot(AT, 50, 100, 30, b"<before>")
    cast = cast_of([printed(0, b"ab"), seam(1, 50), back, printed(50, b"c"), back])
    assert cast.of("o") == ["ab", "\x1bc<before>", "c"]
    assert cast.of("r") == ["100x30"]


def test_who_holds_the_lease_is_told() -> None:
    assert cast_of([held_by(BOT), held_by(None)]).of("m") == ["lease: bot (agent) (take)", "lease: free (yield)"]


def test_a_signal_is_told_with_who_sent_it_and_what_was_typed_in_vain_too() -> None:
    assert cast_of(SINCE_2[:2]).of("m") == [
        "signal: 15 by bot (agent)",
        "given up: what was typed before byte 9 and not read",
    ]
