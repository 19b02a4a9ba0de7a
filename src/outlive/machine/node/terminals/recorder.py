"""What a terminal prints, on its way: reserved, journaled, drawn on the screen model, and then in memory for all.

Rule 1: nothing is shown, or acknowledged to the guest, that is not in the journal; nothing is journaled whose offsets
        are not reserved in SQL.
Rule 2: while the object store takes what it is given, nothing of the recording is dropped: a program that prints faster
        than can be stored waits.
"""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import anyio

from outlive.base import Clock, OutliveError
from outlive.machine.node.terminals.card import Card
from outlive.machine.node.terminals.spool import SEGMENT_AGE_S, SEGMENT_BYTES, Spool
from outlive.machine.node.terminals.tail import Tail
from outlive.machine.terminal import epochs
from outlive.machine.terminal.journal import Mark, Output, Record, Snapshot
from outlive.machine.terminal.marks import Commands, FoundMark, Marks
from outlive.machine.terminal.newest import HELD_LIMIT, HeldSegment
from outlive.machine.terminal.recording import Gap, Piece, Recordings
from outlive.machine.terminal.screen import Screen

BACKLOG_LIMIT = 32 * 1024 * 1024  # of the journal that waits for the object store, while that works
_SNAPSHOT_EVERY_S = 2.0
_RETRY_S, _RETRY_LONGEST_S = 1.0, 30.0

_log = logging.getLogger(__name__)


class Recorder:
    def __init__(self, card: Card, spool: Spool, screen: Screen, recordings: Recordings, clock: Clock) -> None:
        self.card = card
        self.spool = spool
        self.screen = screen
        self.tail = Tail(spool.offset)
        self.marks = Marks()
        self.commands = Commands()
        self._recordings = recordings
        self._clock = clock
        self._reserving = anyio.Lock()
        self._uploading = anyio.Lock()
        self._some = anyio.Event()  # something waits for the object store
        self._full = anyio.Event()  # and should go there now
        self._went = anyio.Event()  # it has
        self._is_store_away = False
        self._snapshot_at = clock.monotonic()
        if spool.oldest_at is not None:
            self._some.set()

    @property
    def offset(self) -> int:
        return self.spool.offset

    # ── coming ──

    async def take(self, data: bytes) -> list[FoundMark]:
        """The next bytes. Returns the marks that they end."""
        offset = self.spool.offset
        end = offset + len(data)
        if epochs.needs_reservation(self.card.terminal.reserved_to, end):
            await self.reserve(end)
        await self._wait_for_store()
        self.spool.append(Output(self._clock.now(), offset, data))
        self.screen.feed(data)
        self.tail.append(data)
        found = self.marks.feed(offset, data)
        if found:
            self.commands.take(found)
        self._poke()
        return found

    def note(self, record: Record) -> None:
        """Something else that happened."""
        self.spool.append(record)
        self._poke()

    async def skip(self, offset: int) -> None:
        """The guest has nothing before `offset` any more: that is gone."""
        await self.reserve(offset)
        self.note(Mark(self._clock.now(), offset, "gap", {"from": self.spool.offset, "to": offset}))
        self.tail.jump(offset)

    async def reserve(self, end: int) -> None:
        """Offsets up to `end` and some more are ours to show."""
        async with self._reserving:
            if epochs.wants_reservation(self.card.terminal.reserved_to, end):
                await self.card.change(lambda found: epochs.reserve(found, end))

    @property
    def wants_reservation(self) -> bool:
        return epochs.wants_reservation(self.card.terminal.reserved_to, self.spool.offset)

    def snapshot(self) -> None:
        self._snapshot_at = self._clock.monotonic()
        screen = self.screen
        self.note(Snapshot(self._clock.now(), self.spool.offset, screen.cols, screen.rows, screen.draw()))

    # ── going to the object store ──

    async def flush(self) -> None:
        """What was recorded up to now is in the object store."""
        async with self._uploading:
            self.spool.cut(self._clock.now())
            await self._upload()

    async def unstored(self) -> tuple[HeldSegment, ...]:
        """What waits for the object store. Of much of it, the newest: the rest goes there first."""
        if self.spool.waiting_bytes > HELD_LIMIT:
            await self.flush()
        contents = [(n, self.spool.content(n)) for n in (*self.spool.sealed(), self.spool.n)]
        return tuple(HeldSegment(n=n, content=content) for n, content in contents if content is not None)

    async def keep_uploading(self) -> None:
        """By size and by age, for ever. What fails is tried again; the journal waits meanwhile."""
        retry_s = _RETRY_S
        while True:
            await self._some.wait()
            if not self.spool.is_due(self._clock.now()):
                with anyio.move_on_after(self._due_in_s()):
                    await self._full.wait()
            self._full = anyio.Event()
            try:
                await self._upload_due()
                retry_s = _RETRY_S
            except OutliveError as error:
                _log.warning("recording of %s: %s", self.card.terminal.id, error.message)
                self._is_store_away = True
                self._wake_waiting()
                await anyio.sleep(retry_s)
                retry_s = min(retry_s * 2, _RETRY_LONGEST_S)

    async def _upload_due(self) -> None:
        async with self._uploading:
            if not self.spool.sealed():
                self.spool.cut(self._clock.now())
            await self._upload()
        if self.spool.wants_snapshot and self._clock.monotonic() - self._snapshot_at >= _SNAPSHOT_EVERY_S:
            self.snapshot()

    async def _upload(self) -> None:
        end, n = self.spool.offset, self.spool.n
        await self._recordings.upload(self.spool, holder=self.card.holder)
        self.card.recorded(to=end, segments=n - 1)
        self._is_store_away = False
        self._wake_waiting()
        if self.spool.oldest_at is None:
            self._some = anyio.Event()

    def _due_in_s(self) -> float:
        oldest = self.spool.oldest_at or self._clock.now()
        left = oldest + timedelta(seconds=SEGMENT_AGE_S) - self._clock.now()
        return max(0.05, left.total_seconds())

    def _poke(self) -> None:
        if not self._some.is_set():
            self._some.set()
        if not self._full.is_set() and self.spool.waiting_bytes >= SEGMENT_BYTES:
            self._full.set()

    async def _wait_for_store(self) -> None:
        while self.spool.waiting_bytes > BACKLOG_LIMIT and not self._is_store_away:
            await self._went.wait()

    def _wake_waiting(self) -> None:
        self._went.set()
        self._went = anyio.Event()

    # ── looking back ──

    def history(self, offset: int) -> AsyncIterator[Piece | Gap]:
        return self._recordings.read_output(self.card.terminal, offset, local=self.spool)

    def close(self) -> None:
        self.spool.close()
        self.screen.close()
