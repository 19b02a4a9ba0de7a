"""Recordings: segments of journals in the object store, their index in SQL, and what is still on the node. Read as one.

Rule 1: a segment is put, then indexed, then forgotten on the node. A crash between any two leaves an object that is put
        again under the same key, or a segment that is indexed already: the index decides.
Rule 2: a byte of output is read once and in order, wherever it lies: here, in the store, or in the recording of the
        terminal that this one was forked from. Where one is missing a `Gap` says so.
Rule 3: memory is bounded by a few segments, whatever the length of a recording.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import anyio
import anyio.to_thread

from outlive.base import BrokenError, CrashPoint, NodeId, NotFoundError, TerminalId, reach
from outlive.machine.terminal.journal import Input, Journal, Mark, Output, Record, Resize, Snapshot, end_of, read_all
from outlive.machine.terminal.records import TerminalRecords
from outlive.machine.terminal.segments import Packed, damaged, folder_of, pack, unpack
from outlive.machine.terminal.status import Seam, Segment, Terminal
from outlive.storage.objects import ObjectStore

PIECE = 128 * 1024  # of output, put together from smaller ones
CACHE_BYTES = 8 * 1024 * 1024
ORIGINS_LIMIT = 16  # forks of forks that are read through; what is older is a gap
BACK_LIMIT = 64  # segments that are looked through from the newest one on
_PAGE = 64
_RETRIES = 8


class Piece(NamedTuple):
    offset: int
    data: bytes


class Gap(NamedTuple):
    """No bytes for these offsets. Rolled back: not lost; they stand for nothing in what the machine is now."""

    start: int
    end: int
    is_rolled_back: bool = False


class LocalJournal(Protocol):
    """What of a journal is on this node."""

    @property
    def terminal(self) -> TerminalId: ...
    def sealed(self) -> Sequence[int]:
        """Numbers of the segments that are complete and not known to be in the object store."""
        ...

    def numbers(self, start: int = 0) -> Sequence[int]:
        """Of all segments that are here and reach to `start` or beyond."""
        ...

    def content(self, n: int) -> bytes | None: ...
    def forget(self, n: int) -> None: ...


class Recordings:
    def __init__(self, objects: ObjectStore, records: TerminalRecords) -> None:
        self._objects = objects
        self._records = records
        self._cached: OrderedDict[str, bytes] = OrderedDict()

    async def upload(self, local: LocalJournal, *, holder: tuple[NodeId, int] | None) -> int:
        """Put every complete segment of `local` into the store. Returns how many. One caller at a time per terminal."""
        numbers = local.sealed()
        # After a restart most of them are there: not one of those is sent again.
        known = await self._indexed(local.terminal, numbers) if len(numbers) > 1 else {}
        for n in numbers:
            content = local.content(n)
            if content is None:
                raise BrokenError("terminal.segment_missing", f"Segment {n} of {local.terminal} is not on its node.")
            packed = await anyio.to_thread.run_sync(pack, content)
            indexed = known.get(n) or await self._put(packed, holder)
            # Another content under its number is fine if it covers the same: its output went to make room here, say.
            if (indexed.end, indexed.input_end) != (packed.segment.end, packed.segment.input_end):
                raise BrokenError("terminal.segment_taken", f"{local.terminal} has another segment {n} already.")
            local.forget(n)
        return len(numbers)

    async def _put(self, packed: Packed, holder: tuple[NodeId, int] | None) -> Segment:
        await self._objects.put_new(packed.segment.key, packed.content)
        reach(CrashPoint.RECORDING_AFTER_PUT)
        return await self._records.add_segment(packed.segment, recorded_to=packed.segment.end, holder=holder)

    async def _indexed(self, terminal: TerminalId, numbers: Sequence[int]) -> dict[int, Segment]:
        found = await self._records.segments(terminal, after=numbers[0] - 1, limit=len(numbers))
        return {segment.n: segment for segment in found}

    async def discard(self, terminal: TerminalId) -> None:
        """Remove every object of a recording. Its forks lose what they shared."""
        async for stored in self._objects.list(folder_of(terminal)):
            await self._objects.delete(stored.key)

    async def read_output(
        self, terminal: Terminal, start: int = 0, end: int | None = None, *, local: LocalJournal | None = None
    ) -> AsyncIterator[Piece | Gap]:
        """What was printed from `start` on, to `end` or to the end of what there is."""
        position = start
        seam: Seam | None = None
        async for journal in self._lineage(terminal, start, end, local, ORIGINS_LIMIT):
            for found in _runs(journal):
                if isinstance(found, Seam):
                    seam = found
                    continue
                reached = found.end if isinstance(found, Gap) else found.offset
                if end is not None:
                    reached = min(reached, end)
                for gap in _gaps(position, reached, seam):
                    yield gap
                position = max(position, reached)
                if isinstance(found, Piece) and position >= found.offset:
                    data = found.data[position - found.offset : None if end is None else max(0, end - found.offset)]
                    if data:
                        yield Piece(position, data)
                        position += len(data)
            if end is not None and position >= end:
                return

    async def read_records(
        self, terminal: Terminal, start: int = 0, end: int | None = None, *, local: LocalJournal | None = None
    ) -> AsyncIterator[Record]:
        """Everything that happened from the offset `start` to `end`, both included, in order; output is cut there."""
        async for journal in self._lineage(terminal, start, end, local, ORIGINS_LIMIT):
            for record in journal.records:
                kept = _within(record, start, end)
                if kept is not None:
                    yield kept

    async def read_screen(
        self, terminal: Terminal, offset: int, *, local: LocalJournal | None = None
    ) -> list[Snapshot | Output | Resize]:
        """What has to be fed to a fresh screen to have it as it was at `offset`: a snapshot, if there is one, and what
        followed. What was rolled back since is left out."""
        return (await self._screen(terminal, offset, local, ORIGINS_LIMIT))[0]

    async def read_inputs(self, terminal: Terminal, counter: int, *, local: LocalJournal | None = None) -> list[Input]:
        """What was typed since the machine came up, from the input offset `counter` on: what a guest that has taken so
        much may have missed."""
        found: list[Input] = []
        async for journal in self._backwards(terminal, local):
            for record in reversed(journal.records):
                if isinstance(record, Mark) and record.kind == "seam":
                    return found[::-1]
                if isinstance(record, Input) and record.input_end > counter:
                    skipped = max(0, counter - record.input_offset)
                    found.append(
                        replace(record, input_offset=record.input_offset + skipped, data=record.data[skipped:])
                    )
            if journal.header.input_offset <= counter:
                break
        return found[::-1]

    async def read_input(self, terminal: Terminal, end: int, *, local: LocalJournal | None = None) -> Input | None:
        """The newest input that ends at the byte `end`, as far as is looked back; in a fork it may be its origin's."""
        return await self._input(terminal, end, None, local, ORIGINS_LIMIT)

    async def _input(
        self, terminal: Terminal, end: int, until: int | None, local: LocalJournal | None, depth: int
    ) -> Input | None:
        """Of what was typed before the output came to `until`."""
        async for journal in self._backwards(terminal, local):
            for record in reversed(journal.records):
                is_before = until is None or record.offset <= until
                if isinstance(record, Input) and record.input_end == end and is_before:
                    return record
        if terminal.origin is None or depth == 0 or (origin := await self._origin_of(terminal)) is None:
            return None
        _, fork = await self._fork_of(terminal, local)
        return await self._input(origin, end, fork if until is None else min(fork, until), None, depth - 1)

    # Forwards

    async def _lineage(
        self, terminal: Terminal, start: int, end: int | None, local: LocalJournal | None, depth: int
    ) -> AsyncIterator[Journal]:
        """The journals from `start` on: those of the terminal it was forked from, up to there, and then its own."""
        if terminal.origin is not None and depth > 0:
            begin, fork = await self._fork_of(terminal, local)
            if start < begin:
                until = fork if end is None else min(fork, end)
                origin = await self._origin_of(terminal)
                if origin is not None:
                    async for journal in self._lineage(origin, start, until, None, depth - 1):
                        yield _clipped(journal, until)
        async for journal in self._own(terminal, start, local):
            yield journal
            if end is not None and end_of(journal)[0] > end:
                return

    async def _own(self, terminal: Terminal, start: int, local: LocalJournal | None) -> AsyncIterator[Journal]:
        after = 0
        for _ in range(_RETRIES):
            # Before the index is read: what is not here any more by then is in the index.
            here = [] if local is None else local.numbers(start)
            async for segment in self._segments(terminal.id, start, after):
                at_hand = None if local is None or segment.n not in here else local.content(segment.n)
                journal = None if at_hand is None else read_all(at_hand)
                yield journal if journal is not None and not _is_stripped(journal) else await self._open(segment)
                after = segment.n
            for n in here:
                content = None if local is None or n <= after else local.content(n)
                if content is not None:
                    yield read_all(content)
                    after = n
                elif n > after:  # uploaded and forgotten since then: it is in the index now
                    break
            else:
                return
        raise BrokenError("terminal.segment_missing", f"Segment {after + 1} of {terminal.id} is nowhere.")

    async def _segments(self, terminal: TerminalId, start: int, after: int) -> AsyncIterator[Segment]:
        # Those that end at `start` may hold what was typed there.
        reaching = max(0, start - 1)
        while page := await self._records.segments(terminal, start=reaching, after=after, limit=_PAGE):
            for segment in page:
                yield segment
            after = page[-1].n

    async def _fork_of(self, terminal: Terminal, local: LocalJournal | None) -> tuple[int, int]:
        """Where its own output begins, and up to where that of its origin is its too."""
        first = await self._records.segments(terminal.id, limit=1)
        begin = first[0].start if first else terminal.recorded_to  # without a segment, that is where it was born
        if not first and local is not None:
            async for journal in self._own(terminal, 0, local):
                outputs = [record.offset for record in journal.records if isinstance(record, Output)]
                begin = outputs[0] if outputs else end_of(journal)[0]
                break
        seams = [seam.start for seam in terminal.seams if seam.at == begin]
        return begin, min([begin, *seams])

    async def _origin_of(self, terminal: Terminal) -> Terminal | None:
        assert terminal.origin is not None
        try:
            return await self._records.get(terminal.origin)
        except NotFoundError:
            return None

    # Backwards

    async def _backwards(self, terminal: Terminal, local: LocalJournal | None) -> AsyncIterator[Journal]:
        """Its own journals from the newest one on, a bounded number."""
        numbers = [] if local is None else list(local.numbers())
        seen = 0
        below = terminal.segments + 1
        for n in reversed(numbers):
            content = None if local is None else local.content(n)
            if content is not None:
                yield read_all(content)
                seen, below = seen + 1, n
        while below > 1 and seen < BACK_LIMIT:
            page = await self._records.segments(terminal.id, after=max(0, below - 9), limit=8)
            for segment in reversed([one for one in page if one.n < below]):
                yield await self._open(segment)
                seen += 1
            below = max(1, below - 8)

    async def _screen(
        self, terminal: Terminal, offset: int, local: LocalJournal | None, depth: int
    ) -> tuple[list[Snapshot | Output | Resize], bool]:
        """And whether it begins with a snapshot."""
        found: list[Snapshot | Output | Resize] = []
        async for journal in self._backwards(terminal, local):
            for record in reversed(journal.records):
                kept = _drawn(record, offset, terminal.seams)
                if kept is not None:
                    found.append(kept)
                if isinstance(kept, Snapshot):
                    return found[::-1], True
        if terminal.origin is not None and depth > 0 and (origin := await self._origin_of(terminal)) is not None:
            _, fork = await self._fork_of(terminal, local)
            before, has_snapshot = await self._screen(origin, min(fork, offset), None, depth - 1)
            return before + found[::-1], has_snapshot
        return found[::-1], False

    # Objects

    async def _open(self, segment: Segment) -> Journal:
        content = self._cached.get(segment.key)
        if content is None:
            try:
                stored = await self._objects.get(segment.key)
            except NotFoundError as error:
                raise damaged(segment.key, "it is not there") from error
            content = await anyio.to_thread.run_sync(unpack, segment, stored)
            self._cached[segment.key] = content
            while sum(map(len, self._cached.values())) > CACHE_BYTES and len(self._cached) > 1:
                self._cached.popitem(last=False)
        else:
            self._cached.move_to_end(segment.key)
        journal = read_all(content)
        if journal.valid_length != len(content) or (journal.header.terminal, journal.header.n) != (
            segment.terminal,
            segment.n,
        ):
            raise damaged(segment.key, "it is no segment of this recording")
        return journal


def _is_stripped(journal: Journal) -> bool:
    """Whether it may hold less than the store: its output went to make room on the node."""
    return any(isinstance(record, Mark) and record.kind == "gap" for record in journal.records)


def _runs(journal: Journal) -> Iterator[Piece | Gap | Seam]:
    """The output of a journal in few pieces, and where it goes on elsewhere."""
    waiting: list[bytes] = []
    offset = size = 0
    for record in journal.records:
        is_next = isinstance(record, Output) and record.offset == offset + size and size < PIECE
        is_jump = isinstance(record, Mark) and record.kind in ("seam", "gap")
        if waiting and (is_jump or (isinstance(record, Output) and not is_next)):
            yield Piece(offset, b"".join(waiting))
            waiting, size = [], 0
        if isinstance(record, Output):
            offset = record.offset if not waiting else offset
            waiting.append(record.data)
            size += len(record.data)
        elif isinstance(record, Mark) and is_jump:
            if (seam := _seam_in(record)) is not None:
                yield seam
            yield Gap(record.offset, record.offset)
    if waiting:
        yield Piece(offset, b"".join(waiting))


def _seam_in(mark: Mark) -> Seam | None:
    if mark.kind != "seam" or not isinstance(mark.value, dict):
        return None
    start = mark.value.get("from")
    return Seam(start=start, at=mark.offset, generation=0) if isinstance(start, int) else None


def _gaps(start: int, end: int, seam: Seam | None) -> Iterator[Gap]:
    """What is missing between these two: lost, or rolled back."""
    if start >= end:
        return
    if seam is None or seam.at < end or seam.start >= end:
        yield Gap(start, end)
        return
    if start < seam.start:
        yield Gap(start, seam.start)
    yield Gap(max(start, seam.start), end, is_rolled_back=True)


def _within(record: Record, start: int, end: int | None) -> Record | None:
    if isinstance(record, Output):
        skipped = max(0, start - record.offset)
        data = record.data[skipped : None if end is None else max(0, end - record.offset)]
        return replace(record, offset=record.offset + skipped, data=data) if data else None
    return record if record.offset >= start and (end is None or record.offset <= end) else None


def _clipped(journal: Journal, until: int) -> Journal:
    """Without what came after `until`: there the fork went its own way."""
    kept = [one for one in (_within(record, 0, until) for record in journal.records) if one is not None]
    return journal._replace(records=kept)


def _drawn(record: Record, offset: int, seams: Sequence[Seam]) -> Snapshot | Output | Resize | None:
    """What of a record shows on the screen as it is at `offset`."""
    if not isinstance(record, Snapshot | Output | Resize) or record.offset > offset:
        return None
    end = offset
    for seam in seams:
        if seam.at > offset:  # it came later, or on another way that the machine went
            continue
        if seam.start < record.offset < seam.at or (seam.start == record.offset and isinstance(record, Output)):
            return None
        if record.offset < seam.start:
            end = min(end, seam.start)
    if isinstance(record, Output):
        data = record.data[: max(0, end - record.offset)]
        return replace(record, data=data) if data else None
    return record
