"""Recordings: every byte once and in order, wherever it lies; damage and crashes are told apart from silence."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import zstandard
from blake3 import blake3

from integration.machine.terminal.recorded import Recorded, open_recorded
from outlive.base import BrokenError, CrashPoint, FencedError, new_node_id, new_terminal_id
from outlive.machine.node.terminals.spool import Spool, spool_folder
from outlive.machine.terminal.journal import Input, Output, Record, Resize, Snapshot
from outlive.machine.terminal.recording import Gap, Piece, Recordings
from outlive.machine.terminal.segments import OPENED_LIMIT, pack, unpack
from outlive.machine.terminal.status import Seam, Segment, Terminal
from outlive.testing.machine_records import AT
from unit.machine.terminal.journals import ADA, BOT, after, gap, held_by, printed, seam, typed

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).with_name("uploading.py")
TEXT = bytes(range(256)) * 40


@pytest.fixture
async def recorded(tmp_path: Path) -> AsyncIterator[Recorded]:
    async with open_recorded(tmp_path) as made:
        yield made


async def in_segments(recorded: Recorded, size: int = 1024) -> Spool:
    """TEXT, recorded in segments of `size`, the last two still on the node."""
    spool = recorded.spool(recorded.first)
    for start in range(0, len(TEXT), size):
        is_last = start + 2 * size >= len(TEXT)
        await recorded.write(spool, printed(start, TEXT[start : start + size]), is_uploaded=not is_last)
    return spool


async def test_any_range_is_read_across_segments_and_what_is_still_on_the_node(recorded: Recorded) -> None:
    spool = await in_segments(recorded)
    for start in range(0, len(TEXT), 701):
        for end in (start + 1, start + 1024, len(TEXT) - 1024, len(TEXT), len(TEXT) + 5, None):
            expected = [Piece(start, TEXT[start:end])] if TEXT[start:end] else []
            assert await recorded.output(recorded.first, start, end, local=spool) == expected
    assert await recorded.output(recorded.first) == [Piece(0, TEXT[:-2048])]
    assert await recorded.output(recorded.first, len(TEXT), local=spool) == []


async def test_the_index_says_what_lies_where(recorded: Recorded) -> None:
    spool = recorded.spool(recorded.first)
    await recorded.write(spool, printed(0, b"abc", at=1), typed(3, 0, b"xy", at=2))
    await recorded.write(spool, typed(3, 2, b"z", at=3))
    first, second = await recorded.records.terminals.segments(recorded.first.id, limit=9)
    assert (first.n, first.start, first.end, first.input_start, first.input_end) == (1, 0, 3, 0, 2)
    assert (first.begun_at, first.ended_at, first.generation) == (after(1), after(2), 1)
    assert (second.n, second.start, second.end, second.input_start, second.input_end) == (2, 3, 3, 2, 3)
    assert await recorded.objects.size(first.key) == first.size
    terminal = await recorded.records.terminals.get(recorded.first.id)
    assert (terminal.segments, terminal.recorded_to) == (2, 3)
    assert spool.sealed() == []


async def test_a_reader_that_meets_an_upload_misses_nothing(recorded: Recorded) -> None:
    spool = recorded.spool(recorded.first)
    for start in range(0, len(TEXT), 512):
        spool.append(printed(start, TEXT[start : start + 512]))
        spool.append(Snapshot(AT, start + 512, 80, 24, b""))  # so that what is uploaded goes at once
        spool.cut(AT)
    found: list[Piece | Gap] = []
    terminal = await recorded.records.terminals.get(recorded.first.id)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: recorded.recordings.upload(spool, holder=recorded.holder))
        position = 0
        while position < len(TEXT):
            async for part in recorded.recordings.read_output(terminal, position, local=spool):
                found.append(part)
                await anyio.lowlevel.checkpoint()
            assert isinstance(found[-1], Piece)
            position = found[-1].offset + len(found[-1].data)
    assert b"".join(part.data for part in found if isinstance(part, Piece)) == TEXT
    assert not any(isinstance(part, Gap) for part in found)


async def test_what_is_lost_is_a_gap_and_what_was_rolled_back_is_told_apart(recorded: Recorded) -> None:
    spool = recorded.spool(recorded.first)
    await recorded.write(spool, printed(0, b"abcdef"), gap(6, 10), printed(10, b"klm"))
    await recorded.write(spool, seam(11, 1000), printed(1000, b"again"))
    await recorded.write(spool, gap(1005, 1010))
    lost, rolled_back, at_the_end = Gap(6, 10), Gap(13, 1000, is_rolled_back=True), Gap(1005, 1010)
    assert await recorded.output(recorded.first) == [
        *(Piece(0, b"abcdef"), lost, Piece(10, b"klm"), rolled_back, Piece(1000, b"again"), at_the_end),
    ]
    assert await recorded.output(recorded.first, 8, 12) == [Gap(8, 10), Piece(10, b"kl")]
    assert await recorded.output(recorded.first, 500, 1002) == [Gap(500, 1000, is_rolled_back=True), Piece(1000, b"ag")]


async def test_output_that_was_lost_before_a_rolled_back_part_is_a_gap_up_to_there(recorded: Recorded) -> None:
    spool = recorded.spool(recorded.first)
    await recorded.write(spool, printed(0, b"abc"))
    await recorded.write(spool, seam(10, 1000), printed(1000, b"x"))
    assert (await recorded.output(recorded.first))[1:3] == [Gap(3, 10), Gap(10, 1000, is_rolled_back=True)]


async def test_records_are_read_in_order_and_cut_at_the_ends_of_the_range(recorded: Recorded) -> None:
    spool = recorded.spool(recorded.first)
    first: list[Record] = [printed(0, b"abc"), held_by(ADA, 3), typed(3, 0, b"x")]
    second: list[Record] = [printed(3, b"def"), typed(6, 1, b"y", by=BOT)]
    await recorded.write(spool, *first)
    await recorded.write(spool, typed(3, 1, b"", by=BOT))
    await recorded.write(spool, *second, is_uploaded=False)

    async def read(start: int, end: int | None) -> list[Record]:
        return [one async for one in recorded.recordings.read_records(recorded.first, start, end, local=spool)]

    between = typed(3, 1, b"", by=BOT)
    assert await read(0, None) == [*first, between, *second]
    assert await read(3, 5) == [held_by(ADA, 3), typed(3, 0, b"x"), between, printed(3, b"de")]
    assert await read(6, 6) == [typed(6, 1, b"y", by=BOT)]


# ── forks ──


async def test_a_fork_reads_what_is_older_than_itself_from_its_origin_and_nothing_newer(recorded: Recorded) -> None:
    parent = recorded.spool(recorded.first)
    await recorded.write(parent, printed(0, b"shared past, "), typed(5, 0, b"p"))
    await recorded.write(parent, printed(13, b"the parent goes on"), typed(20, 1, b"q"))
    child = await recorded.another(
        origin=recorded.first.id, seams=(Seam(start=13, at=5000, generation=1),), reserved_to=9000, recorded_to=13
    )
    assert await recorded.output(child) == [Piece(0, b"shared past, ")]
    own = recorded.spool(child, offset=13)
    await recorded.write(own, seam(13, 5000), printed(5000, b"the child"))
    grandchild = await recorded.another(origin=child.id)
    late = recorded.spool(grandchild, offset=5004)
    await recorded.write(late, printed(5004, b"grandchild"), is_uploaded=False)
    rolled_back = Gap(13, 5000, is_rolled_back=True)
    assert await recorded.output(child) == [Piece(0, b"shared past, "), rolled_back, Piece(5000, b"the child")]
    assert await recorded.output(grandchild, local=late) == [
        *(Piece(0, b"shared past, "), rolled_back, Piece(5000, b"the grandchild")),
    ]
    assert await recorded.output(grandchild, 6, 10, local=late) == [Piece(6, b" pas")]
    terminal = await recorded.records.terminals.get(child.id)
    records = [one async for one in recorded.recordings.read_records(terminal)]
    assert [one.data for one in records if isinstance(one, Input)] == [b"p"]


async def test_what_was_typed_last_is_found_by_its_end_in_a_fork_too(recorded: Recorded) -> None:
    parent = recorded.spool(recorded.first)
    await recorded.write(parent, printed(0, b"shared past, "), typed(5, 0, b"p"), typed(13, 1, b"half"))
    await recorded.write(parent, printed(13, b"the parent goes on"), typed(31, 5, b"q"), typed(31, 6, b"r"))
    child = await recorded.another(origin=recorded.first.id, reserved_to=13, recorded_to=13)
    own = recorded.spool(child, offset=13)
    await recorded.write(own, printed(13, b"the child"), is_uploaded=False)
    find = recorded.recordings.read_input
    parents = await recorded.records.terminals.get(recorded.first.id)
    assert await find(parents, 7, local=parent) == typed(31, 6, b"r")
    assert await find(parents, 5) == await find(child, 5, local=own) == typed(13, 1, b"half")
    assert await find(child, 6, local=own) is None  # the parent's, after they parted
    assert await find(child, 4, local=own) is None
    own.move_input()
    await recorded.write(own, typed(22, 5, b"\x03"), is_uploaded=False)
    assert await find(child, 6, local=own) == typed(22, 5, b"\x03")


async def test_a_fork_whose_origin_is_gone_has_a_gap(recorded: Recorded) -> None:
    child = await recorded.another(origin=new_terminal_id())
    await recorded.write(recorded.spool(child, offset=7), printed(7, b"own"))
    assert await recorded.output(child) == [Gap(0, 7), Piece(7, b"own")]


async def test_forks_in_a_ring_end(recorded: Recorded) -> None:
    one, two = new_terminal_id(), new_terminal_id()
    first = await recorded.another(id=one, name="one", origin=two, reserved_to=5)
    await recorded.another(id=two, name="two", origin=one, reserved_to=9)
    assert await recorded.output(first) == []


# ── the screen and what was typed ──


async def screen_of(recorded: Recorded, terminal: Terminal, offset: int, local: Spool | None = None) -> list[bytes]:
    terminal = await recorded.records.terminals.get(terminal.id)
    found = await recorded.recordings.read_screen(terminal, offset, local=local)
    return [
        b"%dx%d" % (one.cols, one.rows)
        if isinstance(one, Resize)
        else one.data
        if isinstance(one, Output)
        else one.drawing
        for one in found
    ]


async def test_a_screen_is_the_newest_snapshot_before_it_and_what_followed(recorded: Recorded) -> None:
    spool = recorded.spool(recorded.first)
    await recorded.write(spool, Resize(AT, 0, 80, 24), printed(0, b"abc"))
    assert await screen_of(recorded, recorded.first, 3) == [b"80x24", b"abc"]
    await recorded.write(spool, Snapshot(AT, 3, 80, 24, b"<3>"), printed(3, b"def"), Snapshot(AT, 6, 80, 24, b"<6>"))
    await recorded.write(spool, printed(6, b"ghi"), Resize(AT, 9, 90, 30), is_uploaded=False)
    assert await screen_of(recorded, recorded.first, 9, spool) == [b"<6>", b"ghi", b"90x30"]
    assert await screen_of(recorded, recorded.first, 6) == [b"<6>"]
    assert await screen_of(recorded, recorded.first, 5) == [b"<3>", b"de"]


async def test_a_screen_after_a_roll_back_does_not_show_what_was_rolled_back(recorded: Recorded) -> None:
    terminal = await recorded.another(seams=(Seam(start=4, at=100, generation=2),))
    spool = recorded.spool(terminal)
    await recorded.write(spool, Snapshot(AT, 0, 80, 24, b"<0>"), printed(0, b"abcdef"), Snapshot(AT, 6, 80, 24, b"<6>"))
    await recorded.write(spool, seam(4, 100), printed(100, b"xyz"))
    assert await screen_of(recorded, terminal, 103) == [b"<0>", b"abcd", b"xyz"]
    assert await screen_of(recorded, terminal, 6) == [b"<6>"]  # as it was before


async def test_the_screen_of_a_fork_begins_with_that_of_its_origin(recorded: Recorded) -> None:
    await recorded.write(recorded.spool(recorded.first), Snapshot(AT, 0, 80, 24, b"<0>"), printed(0, b"abcdef"))
    child = await recorded.another(origin=recorded.first.id)
    await recorded.write(recorded.spool(child, offset=4), printed(4, b"XYZ"))
    assert await screen_of(recorded, child, 7) == [b"<0>", b"abcd", b"XYZ"]


async def test_what_a_guest_may_have_missed_is_told_since_the_machine_came_up(recorded: Recorded) -> None:
    spool = recorded.spool(recorded.first)
    await recorded.write(spool, typed(0, 0, b"old"), seam(0, 50))
    await recorded.write(spool, typed(50, 2, b"abc"))
    await recorded.write(spool, typed(50, 5, b"def", by=BOT), is_uploaded=False)
    terminal = await recorded.records.terminals.get(recorded.first.id)

    async def missed(counter: int) -> list[tuple[int, bytes]]:
        found = await recorded.recordings.read_inputs(terminal, counter, local=spool)
        return [(one.input_offset, one.data) for one in found]

    assert await missed(0) == [(2, b"abc"), (5, b"def")]
    assert await missed(4) == [(4, b"c"), (5, b"def")]
    assert await missed(6) == [(6, b"ef")]
    assert await missed(8) == []


# ── crashes, fences, damage ──


async def test_killed_between_object_and_index_the_segment_is_put_again_and_indexed_once(tmp_path: Path) -> None:
    async with open_recorded(tmp_path) as recorded:
        spool = recorded.spool(recorded.first)
        await recorded.write(spool, printed(0, b"abc"), is_uploaded=False)
        spool.cut(AT)
        command = [sys.executable, str(PROGRAM), str(tmp_path), recorded.first.id]
        environment = {**os.environ, "OUTLIVE_CRASH_AT": CrashPoint.RECORDING_AFTER_PUT.value}
        child = await anyio.run_process(command, env=environment, check=False)
        assert child.returncode == -9, child.stderr
        assert [stored async for stored in recorded.objects.list("terminals")]
        assert await recorded.records.terminals.segments(recorded.first.id, limit=9) == []
        again = Spool.reopen(spool_folder(tmp_path, recorded.first.id), recorded.first.id)
        assert again is not None
        recorded.spools.append(again)
        assert again.sealed() == [1]
        assert await recorded.recordings.upload(again, holder=recorded.holder) == 1
        assert len([stored async for stored in recorded.objects.list("terminals")]) == 1
        assert await recorded.output(recorded.first) == [Piece(0, b"abc")]


async def test_a_segment_that_is_indexed_already_is_forgotten_and_counted_once(recorded: Recorded) -> None:
    spool = recorded.spool(recorded.first)
    await recorded.write(spool, printed(0, b"abc"))
    again = Spool.reopen(spool_folder(recorded.path, recorded.first.id), recorded.first.id)  # it died before it forgot
    assert again is not None
    recorded.spools.append(again)
    assert again.sealed() == [1]
    again.append(printed(3, b"def"))
    again.cut(AT)
    async for stored in recorded.objects.list("terminals"):
        await recorded.objects.delete(stored.key)
    assert await recorded.recordings.upload(again, holder=recorded.holder) == 2
    assert again.sealed() == []
    assert (await recorded.records.terminals.get(recorded.first.id)).segments == 2
    # What the index knew was not sent again.
    assert len([stored async for stored in recorded.objects.list("terminals")]) == 1


async def test_another_segment_under_its_number_is_not_taken_for_it(recorded: Recorded) -> None:
    await recorded.write(recorded.spool(recorded.first), printed(0, b"abc"))
    other = recorded.spool(recorded.first)
    with pytest.raises(BrokenError, match="another segment"):
        await recorded.write(other, printed(0, b"abcdef"))
    assert other.sealed() == [1]


async def test_a_node_that_lost_the_machine_adds_nothing(recorded: Recorded) -> None:
    spool = recorded.spool(recorded.first)
    spool.append(printed(0, b"abc"))
    spool.cut(AT)
    with pytest.raises(FencedError):
        await recorded.recordings.upload(spool, holder=(new_node_id(), 1))
    assert await recorded.output(recorded.first) == []
    assert spool.sealed() == [1]


async def test_a_damaged_or_missing_object_is_broken_and_not_silence(recorded: Recorded) -> None:
    await recorded.write(recorded.spool(recorded.first), printed(0, b"abc" * 100))
    [segment] = await recorded.records.terminals.segments(recorded.first.id, limit=9)
    content = await recorded.objects.get(segment.key)
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b"", content + b"x"):
        await recorded.objects.replace(segment.key, damaged)
        with pytest.raises(BrokenError, match="damaged"):
            await recorded.output(recorded.first)
    await recorded.objects.delete(segment.key)
    with pytest.raises(BrokenError, match="not there"):
        await recorded.output(recorded.first)


def hostile(content: bytes) -> tuple[Segment, bytes]:
    key = f"terminals/x/1-{blake3(content).hexdigest()[:32]}"
    segment = Segment(
        terminal=new_terminal_id(), n=1, start=0, end=1, begun_at=AT, ended_at=AT, key=key, size=len(content)
    )
    return segment, content


def test_an_object_that_would_become_huge_is_refused_before_it_does() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(OPENED_LIMIT + 1))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(8 * OPENED_LIMIT))
    for content in (bomb, unsized, b"", b"no zstd at all"):
        with pytest.raises(BrokenError, match="damaged"):
            unpack(*hostile(content))


async def test_an_object_of_another_terminal_is_broken(recorded: Recorded) -> None:
    other = await recorded.another()
    await recorded.write(recorded.spool(other), printed(0, b"secret"))
    [theirs] = await recorded.records.terminals.segments(other.id, limit=9)
    mine = theirs.model_copy(update={"terminal": recorded.first.id})
    await recorded.records.terminals.add_segment(mine, recorded_to=6, holder=recorded.holder)
    with pytest.raises(BrokenError, match="no segment of this recording"):
        await recorded.output(recorded.first)


async def test_a_recording_that_is_read_again_is_not_fetched_again(recorded: Recorded) -> None:
    await in_segments(recorded)
    assert await recorded.output(recorded.first) == [Piece(0, TEXT[:-2048])]
    async for stored in recorded.objects.list("terminals"):
        await recorded.objects.delete(stored.key)
    assert await recorded.output(recorded.first) == [Piece(0, TEXT[:-2048])]
    with pytest.raises(BrokenError):
        [one async for one in Recordings(recorded.objects, recorded.records.terminals).read_output(recorded.first)]


async def test_a_discarded_recording_leaves_nothing_in_the_store(recorded: Recorded) -> None:
    await in_segments(recorded)
    await recorded.recordings.discard(recorded.first.id)
    assert [stored async for stored in recorded.objects.list("terminals")] == []


@pytest.mark.parametrize("content", [b"", b"no journal at all"])
def test_what_is_no_journal_is_not_packed(content: bytes) -> None:
    with pytest.raises(BrokenError, match="damaged"):
        pack(content)
