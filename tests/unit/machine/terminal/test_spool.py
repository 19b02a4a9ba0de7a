"""The journal on its node: what was appended is neither lost nor doubled, whatever happens to process or disk."""

import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.base import BrokenError, ExhaustedError, TerminalId, UnavailableError, new_terminal_id
from outlive.machine.node.terminals.spool import (
    RETAINED_LIMIT,
    SEGMENT_BYTES,
    SNAPSHOT_EVERY,
    Spool,
    spool_folder,
)
from outlive.machine.terminal.journal import Input, Mark, Output, Record, Snapshot, read_all
from unit.machine.terminal.journals import AT, after, gap, printed, seam, typed

TERMINAL = new_terminal_id()
PROGRAM = Path(__file__).with_name("appending.py")
PIECE = b"x" * 60_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return spool_folder(tmp_path, TERMINAL)


@contextmanager
def begun(folder: Path, *, limit: int = 64 * 1024 * 1024, n: int = 1, offset: int = 0) -> Iterator[Spool]:
    spool = Spool.begin(folder, TERMINAL, n=n, offset=offset, input_offset=0, generation=1, at=AT, limit=limit)
    try:
        yield spool
    finally:
        spool.close()


@contextmanager
def reopened(folder: Path) -> Iterator[Spool]:
    spool = Spool.reopen(folder, TERMINAL)
    assert spool is not None
    try:
        yield spool
    finally:
        spool.close()


def records_of(spool: Spool) -> list[Record]:
    return [record for n in spool.numbers() for record in read_all(spool.content(n) or b"").records]


def output_of(spool: Spool) -> bytes:
    return b"".join(record.data for record in records_of(spool) if isinstance(record, Output))


def fill(spool: Spool, size: int) -> None:
    end = spool.offset + size
    while spool.offset < end:
        spool.append(printed(spool.offset, PIECE[: end - spool.offset]))


def test_a_reopened_journal_has_everything_and_says_where_output_and_input_end(folder: Path) -> None:
    with begun(folder) as spool:
        spool.append(printed(0, b"abc"))
        spool.append(typed(3, 0, b"xy"))
        spool.cut(after(1), generation=2)
        spool.append(printed(3, b"d"))
        wanted = records_of(spool)
    with reopened(folder) as spool:
        assert records_of(spool) == wanted
        assert (spool.offset, spool.input_offset, spool.generation, spool.n) == (4, 2, 2, 2)
        spool.append(printed(4, b"e"))
        assert output_of(spool) == b"abcde"


def test_where_nothing_was_begun_nothing_is_reopened(folder: Path) -> None:
    assert Spool.reopen(folder, TERMINAL) is None
    with begun(folder) as spool:
        spool.discard()
    assert Spool.reopen(folder, TERMINAL) is None
    with begun(folder):
        pass
    assert Spool.reopen(folder, new_terminal_id()) is None  # those of another are not taken


def test_an_empty_journal_still_says_where_it_stands(folder: Path) -> None:
    with begun(folder, n=7, offset=500) as spool:
        spool.cut(AT)
        assert spool.numbers() == [7]
    with reopened(folder) as spool:
        assert (spool.n, spool.offset, spool.sealed()) == (7, 500, [])
        spool.cut(AT, generation=9)
    with reopened(folder) as spool:
        assert (spool.n, spool.offset, spool.generation) == (7, 500, 9)


@settings(max_examples=30)
@given(st.data())
def test_cut_off_anywhere_it_goes_on_after_the_last_whole_record(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool") / "journal"
    with begun(folder) as spool:
        for number in range(5):
            spool.append(printed(number * 3, b"abc"))
            spool.append(typed(number * 3 + 3, number, b"k"))
        wanted = records_of(spool)
    path = folder / "1.journal"
    os.truncate(path, data.draw(st.integers(path.stat().st_size - 150, path.stat().st_size)))
    with reopened(folder) as spool:
        found = records_of(spool)
        assert found == wanted[: len(found)]
        spool.append(printed(spool.offset, b"more"))
        spool.append(typed(spool.offset, spool.input_offset, b"more"))
        assert records_of(spool)[-2:] == [
            printed(spool.offset - 4, b"more"),
            typed(spool.offset, spool.input_offset - 4, b"more"),
        ]


def test_a_killed_process_loses_nothing_that_append_returned_for(folder: Path) -> None:
    for round_ in range(3):
        command = [sys.executable, str(PROGRAM), str(folder), TERMINAL]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            try:
                # It says each time where it stands, once append has returned; it is killed while it goes on.
                said = [int(line) for line in itertools.islice(child.stdout, 150 + 61 * round_)]
            finally:
                child.send_signal(signal.SIGKILL)
            said += [int(line) for line in child.stdout.read().split(b"\n")[:-1]]
        with reopened(folder) as spool:
            assert spool.offset >= said[-1]
            assert spool.offset - said[-1] <= 2 * 5000  # the one that it could not tell of any more
            assert output_of(spool) == bytes(place % 251 for place in range(spool.offset))
            inputs = b"".join(record.data for record in records_of(spool) if isinstance(record, Input))
            assert inputs == bytes(place % 251 for place in range(spool.input_offset))


@pytest.mark.parametrize(
    "record", [printed(4, b"x"), printed(2, b"x"), typed(3, 3, b"x"), typed(3, 1, b"x"), gap(1, 2), seam(0, 2)]
)
def test_a_hole_that_nothing_speaks_of_is_refused_and_changes_nothing(folder: Path, record: Record) -> None:
    with begun(folder) as spool:
        spool.append(printed(0, b"abc"))
        spool.append(typed(3, 0, b"xy"))
        with pytest.raises(BrokenError, match="hole"):
            spool.append(record)
        assert (spool.offset, spool.input_offset, len(records_of(spool))) == (3, 2, 2)


def test_after_a_gap_and_a_seam_output_goes_on_there_and_input_where_the_machine_is(folder: Path) -> None:
    with begun(folder) as spool:
        spool.append(printed(0, b"abc"))
        spool.append(typed(3, 0, b"xyz"))
        spool.append(gap(3, 10))
        spool.append(printed(10, b"d"))
        spool.append(seam(2, 50))
    with reopened(folder) as spool:
        spool.append(typed(50, 1, b"again"))
        spool.append(printed(50, b"e"))
        assert (spool.offset, spool.input_offset) == (51, 6)
        with pytest.raises(BrokenError, match="hole"):
            spool.append(typed(50, 9, b"x"))


def test_segments_are_cut_by_size_and_what_is_old_is_due(folder: Path) -> None:
    with begun(folder) as spool:
        assert not spool.is_due(after(1000))
        spool.append(printed(0, b"a", at=5))
        assert not spool.is_due(after(14))
        assert spool.is_due(after(15))
        assert spool.oldest_at == after(5)
        fill(spool, SEGMENT_BYTES)
        assert spool.sealed() == []
        assert spool.is_due(after(5))
        spool.append(printed(spool.offset, b"b", at=6))
        assert (spool.sealed(), spool.n) == ([1], 2)
        spool.forget(1)
        assert (spool.sealed(), spool.oldest_at, spool.is_due(after(7))) == ([], after(6), False)
        assert spool.waiting_bytes == (folder / "2.journal").stat().st_size


def test_what_is_uploaded_goes_but_for_what_follows_the_newest_snapshot(folder: Path) -> None:
    with begun(folder) as spool:
        for number in range(4):
            spool.append(printed(number, b"x"))
            if number in (0, 2):
                spool.append(Snapshot(AT, number + 1, 80, 24, b"drawn"))
            spool.cut(AT)
        assert spool.sealed() == [1, 2, 3, 4]
        spool.forget(2)
        assert spool.numbers() == [3, 4, 5]
        spool.forget(4)
        assert spool.numbers() == [3, 4, 5]
        assert spool.sealed() == []
        assert spool.content(1) is None
        assert spool.numbers(start=4) == [4, 5]
        assert sorted(path.name for path in folder.iterdir()) == ["3.journal", "4.journal", "5.journal"]


def test_without_any_snapshot_what_is_uploaded_is_bounded_too(folder: Path) -> None:
    with begun(folder) as spool:
        fill(spool, RETAINED_LIMIT + 4 * SEGMENT_BYTES)
        spool.forget(spool.n)
        assert sum(path.stat().st_size for path in folder.iterdir()) <= RETAINED_LIMIT + 2 * SEGMENT_BYTES


def test_a_snapshot_is_wanted_now_and_then_and_one_that_is_too_long_is_left_out(folder: Path) -> None:
    with begun(folder) as spool:
        fill(spool, SNAPSHOT_EVERY)
        assert spool.wants_snapshot
        spool.append(Snapshot(AT, spool.offset, 1000, 1000, bytes(3 * 1024 * 1024)))
        assert not spool.wants_snapshot
        assert not any(isinstance(record, Snapshot) for record in records_of(spool))
        spool.append(Snapshot(AT, spool.offset, 80, 24, b"drawn"))
        assert any(isinstance(record, Snapshot) for record in records_of(spool))
    with reopened(folder) as spool:
        assert not spool.wants_snapshot


def test_when_the_store_is_away_too_long_the_oldest_output_goes_and_what_was_typed_stays(folder: Path) -> None:
    with begun(folder, limit=4 * SEGMENT_BYTES) as spool:
        for number in range(10):
            spool.append(typed(spool.offset, number, b"k"))
            fill(spool, SEGMENT_BYTES)
        assert spool.waiting_bytes <= 5 * SEGMENT_BYTES
        assert spool.waiting_bytes == sum(path.stat().st_size for path in folder.iterdir())
        records = records_of(spool)
        assert b"".join(record.data for record in records if isinstance(record, Input)) == b"k" * 10
        gaps = [record.value for record in records if isinstance(record, Mark)]
        kept = [record for record in records if isinstance(record, Output)]
        assert gaps[0] == {"from": 0, "to": SEGMENT_BYTES}
        assert kept[-1].end == spool.offset == 10 * SEGMENT_BYTES
        # Every offset is either here or in a gap.
        assert sum(gap["to"] - gap["from"] for gap in gaps) + sum(len(record.data) for record in kept) == spool.offset  # type: ignore[index,call-overload,operator,misc]
    with reopened(folder) as spool:
        assert records_of(spool) == records


def test_what_is_typed_is_refused_before_it_could_not_be_recorded(folder: Path) -> None:
    with begun(folder, limit=SEGMENT_BYTES) as spool:
        while spool.waiting_bytes < SEGMENT_BYTES:
            spool.append(typed(0, spool.input_offset, PIECE))
        with pytest.raises(ExhaustedError, match="cannot be recorded"):
            spool.append(typed(0, spool.input_offset, PIECE))
        spool.append(printed(0, b"still"))
        assert folder.joinpath("1.journal").exists()


@pytest.mark.parametrize("lost", [2, 3])
def test_a_file_that_a_power_cut_took_is_a_gap_and_the_numbers_stay_dense(folder: Path, lost: int) -> None:
    with begun(folder) as spool:
        for number in range(4):
            spool.append(printed(number * 3, b"abc"))
            spool.cut(AT)
    (folder / f"{lost}.journal").write_bytes(b"\0" * 50)
    (folder / "9.new").write_bytes(b"staged")
    with reopened(folder) as spool:
        assert spool.numbers() == [1, 2, 3, 4, 5]
        assert spool.sealed() == [1, 2, 3, 4]
        assert spool.offset == 12
        assert gap(3 * lost - 3, 3 * lost) in records_of(spool)
        assert output_of(spool) == b"abc" * 3
    with reopened(folder) as spool:
        assert gap(3 * lost - 3, 3 * lost) in records_of(spool)
        assert output_of(spool) == b"abc" * 3
    assert not (folder / "9.new").exists()


def test_the_torn_end_of_a_complete_segment_is_a_gap(folder: Path) -> None:
    with begun(folder) as spool:
        spool.append(printed(0, b"abc"))
        spool.append(printed(3, b"def"))
        spool.cut(AT)
        spool.append(printed(6, b"ghi"))
    os.truncate(folder / "1.journal", (folder / "1.journal").stat().st_size - 1)
    with reopened(folder) as spool:
        assert records_of(spool) == [printed(0, b"abc"), gap(3, 6), printed(6, b"ghi")]


def test_a_disk_that_is_full_says_so_and_leaves_the_journal_whole(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with begun(folder) as spool:
            spool.append(printed(0, b"abc"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
            with pytest.raises(ExhaustedError, match="no room"):
                spool.append(printed(3, b"x" * 2000))
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            spool.append(printed(3, b"def"))
            assert output_of(spool) == b"abcdef"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)


def test_a_folder_that_cannot_be_used_is_told_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError, match=os.strerror(errno.ENOTDIR)):
        Spool.begin(tmp_path / "file" / "journal", TerminalId("t"), n=1, offset=0, input_offset=0, generation=1, at=AT)
