"""Who types into a terminal, and what becomes of it: the lease, the journal, the guest, in this order.

Rule 1: a change of the lease is in SQL before it is acknowledged; all of it and everything that is typed passes one
        lock, so from then on not one byte of anybody else gets past.
Rule 2: what is typed is journaled, with who typed it, before it is sent; the guest counts what it has taken. After a
        broken connection or the death of this node the two counts say what has to be sent again: typed once.
Rule 3: when somebody takes the lease, what its holder has typed and the program has not read is given up in the guest
        before the taking is acknowledged.
"""

import logging
from collections.abc import Callable
from typing import Literal, Protocol

import anyio
import anyio.lowlevel

from outlive.base import (
    Clock,
    CrashPoint,
    DeadlineError,
    EffectId,
    OutliveError,
    UnavailableError,
    reach,
)
from outlive.machine.guest_link import AttachedTerminal
from outlive.machine.node.resident import Resident, is_guest_away
from outlive.machine.node.terminals.recorder import Recorder
from outlive.machine.terminal import lease as leases
from outlive.machine.terminal.door import Mode
from outlive.machine.terminal.journal import Actor, Input, LeaseChange, Leased, given_up, signal_sent
from outlive.machine.terminal.recording import Recordings
from outlive.machine.terminal.status import Lease, Operator, Terminal

TYPE_WITHIN_S = 30.0  # that a program may not read
ATTACHED_WITHIN_S = 10.0
_AGAIN_S = 1.0

_log = logging.getLogger(__name__)

Decide = Callable[[Lease | None], Lease | None]


class Typed(Protocol):
    """A terminal, as its keyboard needs it."""

    @property
    def recorder(self) -> Recorder: ...
    @property
    def resident(self) -> Resident: ...
    def lease_changed(self) -> None:
        """Everybody is to be told."""
        ...


class Keyboard:
    def __init__(self, host: Typed, recordings: Recordings, clock: Clock) -> None:
        self._host = host
        self._recordings = recordings
        self._clock = clock
        self._lock = anyio.Lock(fast_acquire=True)  # of the lease, and of the order of what is typed
        self._turn = anyio.Lock(fast_acquire=True)  # of the one whose bytes are on their way to the guest
        self._sending: anyio.CancelScope | None = None
        self._attached: AttachedTerminal | None = None  # where input can go; None while the guest is away
        self._came = anyio.Event()
        self._must_drop = False  # the guest may still hold what a former holder has typed
        self._unheard = anyio.Event()  # the guest may not know what we have given up on this connection
        self.newest: Input | None = None  # what was typed last, as far as this process knows
        self.used_at = clock.monotonic()  # the last sign of life of whoever holds the lease

    @property
    def _terminal(self) -> Terminal:
        return self._host.recorder.card.terminal

    # ── typing ──

    async def type(
        self, operator: Operator, data: bytes, effect: EffectId | None = None, *, only_at: int | None = None
    ) -> bool:
        """Returns when it is on its way to the program, which then gets it, once. Refused by raising.

        False, and nothing is typed, if it would not begin at the byte `only_at` of the input: somebody has typed since.
        """
        leases.check_may_type(self._terminal.lease, operator)
        await self._host.resident.wake_up()
        while True:
            await self._ready()
            async with self._turn:
                if (attached := self._attached) is None:
                    continue  # it has left while we waited for our turn
                async with self._lock:
                    await self._hold(operator)
                    if self._attached is not attached:
                        continue  # nothing is journaled for a machine that is going to sleep
                    if self._must_drop:  # first what a former holder has typed, or ours would go with it later
                        self._host.resident.check()
                        await self._drop()
                    at = self._typed_to(attached)
                    if only_at not in (None, at):
                        return False
                    self._journal(operator, data, effect, at)
                await self._send(attached, data, at, operator)
                return True

    async def _hold(self, operator: Operator, how: Literal["input", "run"] = "input") -> None:
        """Refuses whoever may not type; takes a lease that is free."""
        leases.check_may_type(self._terminal.lease, operator)
        if self._terminal.lease is None:
            now, offset = self._clock.now(), self._host.recorder.offset
            await self._change(
                lambda found: leases.decide_input(found, operator, now=now, offset=offset, how=how), operator, how
            )
        self.used_at = self._clock.monotonic()

    async def hold_to_run(self, operator: Operator) -> None:
        """For a command that is typed soon."""
        async with self._lock:
            await self._hold(operator, "run")

    def note_signal(self, operator: Operator, number: int) -> None:
        """It is about to be sent, in this one's name."""
        recorder = self._host.recorder
        recorder.note(signal_sent(self._clock.now(), recorder.offset, _actor(operator), number))

    def _journal(self, operator: Operator, data: bytes, effect: EffectId | None, at: int) -> None:
        recorder = self._host.recorder
        typed = Input(self._clock.now(), recorder.offset, at, _actor(operator), data, effect)
        recorder.note(typed)
        self.newest = typed
        reach(CrashPoint.TERMINAL_AFTER_JOURNAL)

    def _typed_to(self, attached: AttachedTerminal) -> int:
        """Where what was typed ends; after a seam, where the guest's own count does."""
        spool = self._host.recorder.spool
        return attached.input_end if spool.is_input_moved else spool.input_offset

    @property
    def typed_to(self) -> int | None:
        """What is typed next begins here; None while the guest is away."""
        return None if self._attached is None else self._typed_to(self._attached)

    async def _send(self, attached: AttachedTerminal, data: bytes, at: int, operator: Operator) -> None:
        if attached.type_now(data, at=at):
            return
        with anyio.move_on_after(TYPE_WITHIN_S) as waiting, anyio.CancelScope() as scope:
            self._sending, is_left_over = scope, True
            try:
                await attached.type(data, at=at)
                is_left_over = False
            except UnavailableError as error:
                is_left_over = not is_guest_away(error)
                if is_left_over:
                    raise  # else it is journaled: it is sent again as soon as the guest is back
            finally:
                self._sending = None
                self._must_drop = self._must_drop or is_left_over  # also if who typed it has left in the middle
        if scope.cancelled_caught:
            leases.check_may_type(self._terminal.lease, operator)
        if waiting.cancelled_caught:
            async with self._lock:
                await self._drop()
            raise DeadlineError("terminal.input_full", "The program in this terminal does not read what is typed.")

    async def _ready(self) -> AttachedTerminal:
        if self._attached is not None:
            return self._attached
        with anyio.move_on_after(ATTACHED_WITHIN_S):
            while self._attached is None:
                await self._came.wait()
            return self._attached
        raise UnavailableError("machine.guest_away", "The machine does not take what is typed now; try again.")

    # ── the guest comes and goes ──

    async def resume(self, attached: AttachedTerminal) -> None:
        """Send what the guest has not taken of what was typed; from then on there is somebody to type to, for as long
        as this runs. What it did not hear that it should give up is said again, also if nobody types."""
        spool, counter = self._host.recorder.spool, attached.input_at
        self._unheard = anyio.Event()  # its count is what it says
        if counter > spool.input_offset:
            spool.move_input()  # a fork remembers what was typed to its parent: it goes on by the guest's count
        while not await self._resumed(attached, counter):
            await anyio.sleep(_AGAIN_S)
            counter = attached.input_end  # what it has taken by now is not sent again
        while True:
            await self._unheard.wait()
            await anyio.sleep(_AGAIN_S)
            await self._say_again()

    async def _say_again(self) -> None:
        resident = self._host.resident
        if resident.frozen or resident.gate.is_shut or self._attached is None or self._lock.locked():
            return
        async with self._lock:
            try:
                if self._unheard.is_set():
                    await self._drop()
            except OutliveError as error:
                _log.info("terminal %s: what was typed is not given up yet: %s", self._terminal.id, error.message)

    async def _resumed(self, attached: AttachedTerminal, counter: int) -> bool:
        async with self._turn:
            spool = self._host.recorder.spool
            try:
                if self._unheard.is_set():
                    await self._give_up(attached, attached.input_end)
                with anyio.CancelScope() as self._sending:
                    if not spool.is_input_moved and counter < spool.input_offset:
                        await self._send_again(attached, counter)
                self._sending = None
                if self._must_drop:
                    await self._give_up(attached, self._typed_to(attached))
                    self._must_drop = False
            except OutliveError as error:  # of the object store, say; nobody can type meanwhile
                _log.warning("terminal %s: what was typed could not be sent: %s", self._terminal.id, error.message)
                return False
            finally:
                self._sending = None
            self._attached = attached
            self._came.set()
            return True

    async def _send_again(self, attached: AttachedTerminal, counter: int) -> None:
        spool, lease = self._host.recorder.spool, self._terminal.lease
        for missed in await self._recordings.read_inputs(self._terminal, counter, local=spool):
            if is_overtaken(missed, lease):
                await self._give_up(attached, missed.input_end)
            else:
                await attached.type(missed.data, at=missed.input_offset)
        if attached.input_end < spool.input_offset:  # what is not in the journal any more
            await self._give_up(attached, spool.input_offset)

    async def _give_up(self, attached: AttachedTerminal, upto: int | None) -> None:
        """What was typed before `upto` and not read. It is counted here at once: until the guest has said so too, the
        two counts may be apart."""
        was_unheard = self._unheard.is_set()
        self._unheard.set()
        said = await attached.drop_input(upto)
        self._unheard = anyio.Event()
        if was_unheard or said.at < said.input:
            self._note_given_up(None if was_unheard else said.at, said.input)

    def _note_given_up(self, start: int | None, to: int) -> None:
        recorder = self._host.recorder
        recorder.note(given_up(self._clock.now(), recorder.offset, start, to))

    def leave(self, attached: AttachedTerminal) -> None:
        if self._attached is attached:
            self._attached = None
            self._came = anyio.Event()

    # ── the lease ──

    async def attach(self, operator: Operator, mode: Mode, *, is_return: bool = False) -> None:
        async with self._lock:
            now, offset = self._clock.now(), self._host.recorder.offset

            def decide(found: Lease | None) -> Lease | None:
                return leases.decide_attach(found, operator, mode=mode, now=now, offset=offset, is_return=is_return)

            if decide(self._terminal.lease) != self._terminal.lease:
                await self._change(decide, operator, "attach")
            if self._terminal.lease is not None and self._terminal.lease.operator == operator.id:
                self.used_at = self._clock.monotonic()

    def saw_leave(self, operator: Operator) -> None:
        """From now on its absence counts."""
        if self._terminal.lease is not None and self._terminal.lease.operator == operator.id:
            self.used_at = self._clock.monotonic()

    async def take(self, operator: Operator) -> None:
        async with self._lock:
            now, offset = self._clock.now(), self._host.recorder.offset
            await self._change(
                lambda found: leases.decide_take(found, operator, now=now, offset=offset), operator, "take"
            )

    async def yield_(self, operator: Operator) -> None:
        async with self._lock:
            await self._change(lambda found: leases.decide_yield(found, operator), operator, "yield")

    async def grant(self, operator: Operator, to: Operator) -> None:
        async with self._lock:
            now, offset = self._clock.now(), self._host.recorder.offset
            await self._change(
                lambda found: leases.decide_grant(found, operator, to, now=now, offset=offset), operator, "grant"
            )

    async def expire(self, *, is_attached: bool, grace_s: float) -> None:
        """Free it if its holder is gone."""
        held, idle_s = self._terminal.lease, self._clock.monotonic() - self.used_at
        is_over = leases.decide_expiry(held, is_attached=is_attached, idle_s=idle_s, grace_s=grace_s) is None
        if held is not None and is_over and not self._lock.locked():
            async with self._lock:
                await self._change(lambda found: None if found == held else found, None, "expiry")

    async def _change(self, decide: Decide, by: Operator | None, how: LeaseChange) -> None:
        """Ask SQL, write it down, tell everybody; and when it was taken from somebody, stop what that one typed."""
        recorder, before = self._host.recorder, self._terminal.lease
        now = self._clock.now()

        def change(found: Terminal) -> Terminal:
            leases.check_open(found)
            return found.model_copy(update={"lease": decide(found.lease), "changed_at": now})

        decide(before)  # refused without asking SQL: nobody else changes it
        after = (await recorder.card.change(change)).lease
        reach(CrashPoint.TERMINAL_AFTER_LEASE)
        if after != before:
            self.used_at = self._clock.monotonic()
            recorder.note(Leased(now, recorder.offset, after, _actor(by) if by else None, how))
            self._must_drop = self._must_drop or self._is_taken(after)
            self._host.lease_changed()
        if self._must_drop:
            await self._drop()

    def _is_taken(self, lease: Lease | None) -> bool:
        """Whether somebody has it now against whose will there may still be something on its way: also of one who had
        it before it was free."""
        typist = None if self.newest is None else self.newest.operator.id
        is_forced = lease is not None and lease.is_forced and typist != lease.operator
        return is_forced and self._host.recorder.spool.input_offset > 0

    async def _drop(self) -> None:
        """What was typed and not read is given up. A machine that a person has stopped finds the word when it goes on,
        and is asked again before the next key."""
        self._must_drop = True
        if self._sending is not None:
            self._sending.cancel()
        attached = self._attached
        if not (is_halted := "halted" in self._host.resident.frozen):
            await self._host.resident.wake_up()
            attached = await self._ready()
        while self._sending is not None:  # it was cancelled, and has to hear of it
            await anyio.lowlevel.checkpoint()
        if attached is None:
            return
        if is_halted:
            attached.tell_drop(self._typed_to(attached))
            self._note_given_up(None, attached.input_end)
        else:
            await self._give_up(attached, self._typed_to(attached))
            self._must_drop = False


def is_overtaken(typed: Input, lease: Lease | None) -> bool:
    """Whether somebody has taken the terminal from who typed this, before it reached the machine."""
    if lease is None or not lease.is_forced:
        return False
    return typed.operator.id != lease.operator and typed.at <= lease.since


def _actor(operator: Operator) -> Actor:
    return Actor(operator.id, operator.name, operator.kind)
