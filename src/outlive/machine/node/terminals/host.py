"""The host of one open terminal of a machine that is up: attached to the guest as its recorder, watched by many.

    guest ─ journal ─ screen model ─ memory ─ observers          keys ─ lease ─ journal ─ guest

Rule 1: one read of the guest, however many watch; and nobody's watching or not watching changes what is recorded.
Rule 2: it is there from the machine's coming up to its end here, or the terminal's. A guest that is away for a while (a
        checkpoint, a node that was restarted) is attached to again, where the journal ends.
Rule 3: it neither keeps its machine awake nor wakes it. Who watches, types or prints does.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import anyio.abc

from outlive.base import FencedError, InvalidError, OutliveError, UnavailableError
from outlive.machine.guest_link import AttachedTerminal, Guest, TerminalExit
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.resident import End, Resident
from outlive.machine.node.terminals.audience import Audience
from outlive.machine.node.terminals.card import Card
from outlive.machine.node.terminals.ending import How, ended, last_frames
from outlive.machine.node.terminals.keyboard import Keyboard
from outlive.machine.node.terminals.observer import Observer
from outlive.machine.node.terminals.recorder import Recorder
from outlive.machine.node.terminals.reopening import open_journal, rebuild, recall_marks
from outlive.machine.node.terminals.tail import Tail
from outlive.machine.node.terminals.window import Window
from outlive.machine.terminal import epochs, frames, lease
from outlive.machine.terminal.door import AttachTerminal, TerminalView
from outlive.machine.terminal.journal import Leased
from outlive.machine.terminal.marks import FoundMark
from outlive.machine.terminal.recording import Gap, Piece, Recordings
from outlive.machine.terminal.status import Operator, Size, Terminal

READY_WITHIN_S = 20.0
_GUEST_WITHIN_S = 60.0
_EXIT_WITHIN_S = 10.0
_HUNG_UP_WITHIN_S = 5.0
_RETRY_S, _RETRY_LONGEST_S = 0.05, 2.0

_log = logging.getLogger(__name__)


class TerminalHost:
    def __init__(self, parts: NodeParts, recordings: Recordings, resident: Resident, terminal: Terminal) -> None:
        self.resident = resident
        self.card = Card(terminal, parts.terminals, (parts.node, resident.generation))
        self.keyboard = Keyboard(self, recordings, parts.clock)
        self.audience = Audience()
        self.window = Window(self, parts.clock)
        self.listeners: list[Callable[[list[FoundMark]], None]] = []  # told of marks when they are in the journal
        self.title = terminal.title
        self._parts = parts
        self._recordings = recordings
        self._clock = parts.clock
        self._recorder: Recorder | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._scope = anyio.CancelScope()
        self._attending: anyio.CancelScope | None = None  # while attached to the guest
        self._left = anyio.Event()  # set while not
        self._left.set()
        self._ready = anyio.Event()
        self.over = anyio.Event()  # nothing of it runs any more; whoever runs it says so
        self._is_reserving = False
        self._how: How | None = None  # the terminal has ended
        self._closing: How | None = None  # somebody is about to end it
        self._ending = anyio.Lock()

    # ── what is known of it ──

    @property
    def terminal(self) -> Terminal:
        return self.card.terminal

    @property
    def recorder(self) -> Recorder:
        assert self._recorder is not None, "nobody asks before it is ready"
        return self._recorder

    @property
    def tail(self) -> Tail:
        return self.recorder.tail

    @property
    def size(self) -> Size:
        return self.window.size

    def view(self) -> TerminalView:
        return TerminalView(
            terminal=self.terminal.model_copy(update={"title": self.title}),
            offset=self.recorder.offset,
            operators=self.audience.present,
        )

    def history(self, offset: int) -> AsyncIterator[Piece | Gap]:
        return self.recorder.history(offset)

    def draw(self) -> bytes:
        return self.recorder.screen.draw()

    @property
    def is_ready(self) -> bool:
        return self._recorder is not None

    @property
    def is_full_screen(self) -> bool:
        return self._recorder is not None and self._recorder.screen.is_alternate

    async def wait_ready(self) -> None:
        with anyio.move_on_after(READY_WITHIN_S):
            await self._ready.wait()
        if self._recorder is None:
            raise UnavailableError("terminal.not_ready", f"Terminal {self.terminal.id!r} is not ready yet; try again.")

    # ── its life ──

    async def run(self) -> None:
        """Until the machine ends here, or the terminal does and all of it is in the object store."""
        try:
            with self._scope:
                if not await self._open():
                    return
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    tasks.start_soon(self.recorder.keep_uploading)
                    self._ready.set()
                    await self._record()
                    if self._how is not None:
                        await self._store_rest()
                    tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            self._ready.set()
            if self._recorder is not None:
                self._recorder.close()

    def end(self, how: End) -> None:
        """Its machine is not up here any more."""
        self.leave("hibernated" if how == "hibernated" else "away")
        self._scope.cancel()

    def leave(self, machine: Literal["hibernated", "away"] = "away") -> None:
        """Who watches is let go, and comes again."""
        self.audience.send_away(frames.status_machine(machine))

    async def _open(self) -> bool:
        while True:
            try:
                spool = await open_journal(self._parts, self.terminal, self.resident.generation)
                screen = await rebuild(self._parts, self._recordings, self.terminal, spool)
                recorder = Recorder(self.card, spool, screen, self._recordings, self._clock)
                await recall_marks(recorder)
            except FencedError:
                return False
            except OutliveError as error:
                _log.warning("terminal %s cannot be taken up: %s", self.terminal.id, error.message)
                await anyio.sleep(_RETRY_LONGEST_S)
            else:
                self._recorder = recorder
                return True

    async def _record(self) -> None:
        """Take all that it prints, over as many connections as it needs."""
        pause_s = _RETRY_S
        while self._how is None:
            try:
                guest = await self.resident.door.guest(_GUEST_WITHIN_S)
                with anyio.CancelScope() as self._attending:
                    exit = await self._attend(guest)
                    await self._finish(How("exited", exit.code, exit.signal))
                pause_s = _RETRY_S
            except FencedError:
                return
            except OutliveError as error:
                if error.code == "machine.terminal_unknown":
                    await self._lose()
                    continue
                _log.info("terminal %s: %s", self.terminal.id, error.message)
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RETRY_LONGEST_S)
            finally:
                self._attending = None

    async def _attend(self, guest: Guest) -> TerminalExit:
        terminal, recorder = self.terminal, self.recorder
        at = epochs.to_guest(terminal.epoch, recorder.offset)
        attaching = guest.terminals.attach(terminal.name, offset=at, with_input=True, is_recorder=True)
        self._left = anyio.Event()
        try:
            async with attaching as attached:
                if attached.is_gap:
                    await recorder.skip(epochs.to_offset(terminal.epoch, attached.offset))
                    self._show([])
                await self._take_all(attached)
        finally:
            self._left.set()
        return await guest.terminals.wait(terminal.name, _EXIT_WITHIN_S)

    async def _take_all(self, attached: AttachedTerminal) -> None:
        failed: OutliveError | None = None
        async with anyio.create_task_group() as tasks:
            # Beside the output: a program may wait for us to take that before it reads what was typed.
            tasks.start_soon(self.keyboard.resume, attached)
            try:
                while (data := await attached.receive()) is not None:
                    found = await self.recorder.take(data)
                    attached.ack(attached.offset)
                    self._show(found)
                    await self.audience.keep_pace(self.tail)
            except OutliveError as error:  # not through the task group, which would wrap it
                failed = error
            finally:
                self.keyboard.leave(attached)
            tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed

    def _show(self, found: list[FoundMark]) -> None:
        """What has come is there for everybody."""
        self.resident.touch()
        for mark in found:
            if mark.kind == "title":
                self.title = mark.text
        self.audience.show(self.tail, found)
        if found:
            for listener in self.listeners:
                listener(found)
        if self._tasks is not None and self.recorder.wants_reservation and not self._is_reserving:
            self._is_reserving = True
            self._tasks.start_soon(self._reserve_ahead)

    async def _reserve_ahead(self) -> None:
        try:
            await self.recorder.reserve(self.recorder.offset)
        except OutliveError as error:  # then whoever needs it asks again, and waits
            _log.info("terminal %s: %s", self.terminal.id, error.message)
        finally:
            self._is_reserving = False

    # ── its end ──

    async def _lose(self) -> None:
        """The guest does not hold it any more."""
        try:
            await self._finish(How("lost", reason="The machine does not hold it any more."))
        except OutliveError as error:
            _log.info("terminal %s: %s", self.terminal.id, error.message)
            await anyio.sleep(_RETRY_LONGEST_S)

    async def _finish(self, how: How) -> None:
        """Written down, then told. Once; if somebody is closing it, that is how."""
        async with self._ending:
            if self._how is not None:
                return
            how, now, recorder = self._closing or how, self._clock.now(), self.recorder
            held = self.terminal.lease
            changed = await self.card.change(lambda found: ended(found, how, recorder.offset, self.title, now))
            self._how = how
            recorder.note(how.mark(now, recorder.offset))
            if held is not None:
                recorder.note(Leased(now, recorder.offset, None, None, "end"))
            self.audience.finish(*last_frames(changed))

    async def _store_rest(self) -> None:
        """The guest may forget it now; the journal when all of it is in the object store."""
        try:
            guest = await self.resident.door.guest(_EXIT_WITHIN_S)
            await guest.terminals.close(self.terminal.name)
        except OutliveError as error:  # it goes with the machine
            _log.info("terminal %s is not forgotten yet: %s", self.terminal.id, error.message)
        pause_s = _RETRY_S
        while True:
            try:
                await self.recorder.flush()
                self.recorder.spool.discard()
                return
            except FencedError:
                return
            except OutliveError as error:
                _log.warning("terminal %s: its end is not recorded yet: %s", self.terminal.id, error.message)
                await anyio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RETRY_LONGEST_S)

    async def close(self, operator: Operator) -> None:
        lease.check_may_close(self.terminal, operator)
        if self._how is not None:
            return
        self._closing = How("closed", reason=f"{operator.name} closed it.")
        try:
            async with self.resident.use() as guest:
                lease.check_may_close(self.terminal, operator)  # still: somebody may have taken it meanwhile
                await guest.terminals.close(self.terminal.name)
        except OutliveError:
            self._closing = None
            raise
        await self._finish(self._closing)
        if self._attending is not None:
            self._attending.cancel()

    async def rest(self) -> None:
        """Before its machine sleeps, when the guest has hung up: all is in the object store, and the record says how
        much that is, so that whoever wakes it knows that nothing was rolled back."""
        with anyio.move_on_after(_HUNG_UP_WITHIN_S):
            await self._left.wait()
        if self._attending is not None:
            self._attending.cancel()
            await self._left.wait()
        if self._recorder is None or self._how is not None:
            return
        self.recorder.snapshot()
        await self.recorder.flush()
        end, title = self.recorder.offset, self.title
        await self.card.change(lambda found: epochs.settle(found, end).model_copy(update={"title": title}))

    async def flush(self) -> Terminal:
        await self.recorder.flush()
        return await self.card.change(lambda found: found.model_copy(update={"title": self.title}))

    # ── who watches ──

    @asynccontextmanager
    async def attached(self, request: AttachTerminal) -> AsyncIterator[Observer]:
        await self.wait_ready()
        lease.check_open(self.terminal)
        if request.offset is not None and request.offset > (end := self.recorder.offset):
            raise InvalidError("terminal.offset_ahead", f"Nothing was printed at {request.offset} yet: it is at {end}.")
        self.audience.check_room()
        if "halted" not in self.resident.frozen:  # one that a person has stopped can be looked at
            await self.resident.wake_up()
        await self.keyboard.attach(request.operator, request.mode, is_return=request.is_return)
        async with self.resident.attach():
            observer = Observer(self, request, self._clock.now())
            self.audience.join(observer)
            self.audience.tell_who_is_here(self._tasks)
            try:
                if self._how is not None:
                    observer.finish(*last_frames(self.terminal))
                yield observer
            finally:
                self.gone(observer)

    def gone(self, observer: Observer) -> None:
        if self.audience.leave(observer):
            self.keyboard.saw_leave(observer.operator)
            self.audience.trim(self.tail)
            self.audience.tell_who_is_here(self._tasks)

    def moved(self) -> None:
        self.audience.moved()

    def is_level(self, observer: Observer) -> None:
        self.audience.trim(self.tail)

    def lease_changed(self) -> None:
        """Everybody is told, and from now on its holder's window counts."""
        held = self.terminal.lease
        self.audience.say(frames.status_lease(held))
        sized = None if held is None else self.audience.sized_by(held.operator)
        if sized is not None and sized.size is not None and self._tasks is not None:
            self._tasks.start_soon(self.resize_by, sized, sized.size)

    async def expire_lease(self) -> None:
        held = self.terminal.lease
        if held is None or self._recorder is None or self._how is not None:
            return
        is_attached = self.audience.is_here_to_type(held.operator)
        await self.keyboard.expire(is_attached=is_attached, grace_s=self._parts.lease_grace_s)

    # ── what is done to it ──

    async def type(self, operator: Operator, data: bytes) -> None:
        lease.check_open(self.terminal)
        self.resident.is_dirty = True
        await self.keyboard.type(operator, data)

    async def signal(self, operator: Operator, number: int) -> None:
        lease.check_open(self.terminal)
        lease.check_may_type(self.terminal.lease, operator)
        async with self.resident.use() as guest:
            lease.check_may_type(self.terminal.lease, operator)  # still: it may have waited for a checkpoint
            self.keyboard.note_signal(operator, number)
            await guest.terminals.signal(self.terminal.name, number)

    async def resize_by(self, observer: Observer, size: Size) -> None:
        """What somebody's window is like. Only that of who holds the terminal counts; whatever fails, it stays."""
        if not lease.may_resize(self.terminal.lease, observer.operator):
            return
        try:
            await self.window.resize(size, observer.operator)
        except OutliveError as error:
            _log.info("terminal %s keeps its size: %s", self.terminal.id, error.message)
