"""How large a terminal is: its screen, what its program believes, and its record.

Rule: the screen has a size before the program hears of it, which draws anew at once; the record follows. What the
program refuses is taken back. Whoever asked may be gone meanwhile: it is brought to its end all the same.
"""

from typing import Protocol

import anyio

from outlive.base import Clock, OutliveError
from outlive.machine.guest_link import Guest
from outlive.machine.node.resident import Resident
from outlive.machine.node.terminals.audience import Audience
from outlive.machine.node.terminals.recorder import Recorder
from outlive.machine.terminal import frames, lease
from outlive.machine.terminal.journal import Actor, Resize
from outlive.machine.terminal.status import Operator, Size, Terminal


class Sized(Protocol):
    """A terminal, as its window needs it."""

    @property
    def recorder(self) -> Recorder: ...
    @property
    def resident(self) -> Resident: ...
    @property
    def audience(self) -> Audience: ...


class Window:
    def __init__(self, host: Sized, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._lock = anyio.Lock()
        self._wanted: Size | None = None

    @property
    def size(self) -> Size:
        """Of the screen."""
        screen = self._host.recorder.screen
        return Size(screen.cols, screen.rows)

    @property
    def _terminal(self) -> Terminal:
        return self._host.recorder.card.terminal

    async def resize(self, size: Size, operator: Operator) -> None:
        """By who holds the lease; refused by raising."""
        self._wanted = size
        async with self._lock:
            size = self._wanted  # of many that waited the last one counts
            if size == self.size == (self._terminal.cols, self._terminal.rows):
                return
            async with self._host.resident.use() as guest:
                lease.check_may_type(self._terminal.lease, operator)  # still
                with anyio.CancelScope(shield=True):
                    await self._resize(guest, size, operator)

    async def _resize(self, guest: Guest, size: Size, operator: Operator) -> None:
        before = self.size
        self._resize_screen(size, operator)
        try:
            await guest.terminals.resize(self._terminal.name, size.cols, size.rows)
        except OutliveError:
            self._resize_screen(before, operator)
            raise
        card = self._host.recorder.card
        await card.change(lambda found: found.model_copy(update={"cols": size.cols, "rows": size.rows}))

    def _resize_screen(self, size: Size, operator: Operator) -> None:
        recorder = self._host.recorder
        who = Actor(operator.id, operator.name, operator.kind)
        recorder.note(Resize(self._clock.now(), recorder.offset, size.cols, size.rows, who))
        recorder.screen.resize(size.cols, size.rows)
        self._host.audience.say_at(recorder.offset, frames.status_size(size.cols, size.rows))
