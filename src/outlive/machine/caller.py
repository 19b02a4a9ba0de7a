"""Using a machine wherever it is and whatever it is doing: wakes it, finds its node, and asks again when it has moved.

Rule 1: a command is only ever asked for again with its effect id, so asking again never runs it again.
Rule 2: what the journal knows is answered from it: a machine is not woken for something that is over.
Rule 3: one that was only begun may never have been started, if its machine was put to sleep or its node died just
        then: it is asked for again, with the request, and the machine's own ledger says whether it starts.
Rule 4: an effect that was begun in a machine that is gone for good is `lost`. That is an answer, and it stays.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar

import anyio

from outlive.base import (
    Clock,
    ConflictError,
    EffectId,
    FencedError,
    MachineId,
    NotFoundError,
    OutliveError,
    UnavailableError,
)
from outlive.machine.door import ExecRequest, MachineDoor, Output, digest_of
from outlive.machine.keeper import MachineKeeper
from outlive.machine.records import Effects
from outlive.machine.status import Effect, Machine

# Whoever asks again, with the request, has a command started that was begun and never started.
MOVED: frozenset[str] = frozenset(
    {
        "machine.fenced",
        "machine.busy",
        "machine.guest_away",
        "machine.unsaved",
        "node.away",
        "node.slow",
        "node.unknown",
        "effect.not_started",
        "terminal.not_ready",
    }
)
RETRY_WITHIN_S = 60.0  # from the first time that it did not answer: longer than a node takes to be restarted
ASLEEP_WITHIN_S = 60.0  # of all pauses of one call for a machine that was said to be asleep
_SHORTEST_S = 0.02
_LONGEST_S = 1.0

T = TypeVar("T")

Ask = Callable[[int], AsyncIterator[Output | Effect]]


class Asked(NamedTuple):
    """A request, as the journal knows it."""

    effect: EffectId
    digest: str


def asked_of(request: ExecRequest) -> Asked:
    return Asked(request.effect_id, digest_of(request))


class MachineCaller:
    def __init__(self, keeper: MachineKeeper, effects: Effects, door: MachineDoor, clock: Clock) -> None:
        self._keeper = keeper
        self._effects = effects
        self._door = door
        self._clock = clock

    @property
    def door(self) -> MachineDoor:
        return self._door

    async def exec(self, machine: MachineId, request: ExecRequest) -> Effect:
        """What came of the command, once."""
        telling = self.tell(
            machine, asked_of(request), lambda generation: self._exec_once(machine, generation, request)
        )
        async with closing(telling):
            async for told in telling:
                if isinstance(told, Effect):
                    return told
        raise AssertionError("a command has a result")

    def follow(self, machine: MachineId, request: ExecRequest) -> AsyncIterator[Output | Effect]:
        """The same with the output as it comes. After a break it begins again at offset 0: offsets say what is new."""
        return self.tell(machine, asked_of(request), lambda generation: self._door.follow(machine, generation, request))

    async def effect(self, machine: MachineId, effect: EffectId) -> Effect:
        """What the journal says of it now."""
        found = await self._effects.find(machine, effect)
        if found is None:
            raise NotFoundError("effect.unknown", f"Machine {machine!r} knows no effect {effect[:128]!r}.")
        return found

    async def use(self, machine: MachineId, call: Callable[[int], Awaitable[T]]) -> T:
        """What `call` returns for the machine's generation, awake. It may be called more than once."""
        patience = _Patience()
        while True:
            try:
                awake = await self._keeper.ensure_awake(machine)
                return await call(awake.generation)
            except OutliveError as error:
                await patience.wait_or_raise(error)

    async def tell(self, machine: MachineId, asked: Asked, ask: Ask) -> AsyncIterator[Output | Effect]:
        """What `ask` tells for the machine's generation, awake, until the effect is told. It may be called more than
        once, so it asks under the effect's id; what the journal knows is not asked for."""
        patience = _Patience()
        while True:
            try:
                found = await self._awake_or_known(machine, asked)
                if isinstance(found, Effect):
                    yield found
                    return
                async with closing(ask(found.generation)) as telling:
                    async for told in telling:
                        yield told
                        if isinstance(told, Effect):
                            return
                raise UnavailableError("node.away", "A node ended its answer too early.")
            except OutliveError as error:
                await patience.wait_or_raise(error)

    async def _exec_once(
        self, machine: MachineId, generation: int, request: ExecRequest
    ) -> AsyncIterator[Output | Effect]:
        yield await self._door.exec(machine, generation, request)

    async def _awake_or_known(self, machine: MachineId, asked: Asked) -> Machine | Effect:
        record = await self._keeper.find(machine)
        if record.state == "running" and record.desired == "running":
            return record  # its node looks into the journal itself
        known = await self._effects.find(machine, asked.effect)
        if known is not None and known.digest != asked.digest:
            raise ConflictError("effect.other_request", f"Effect {known.id!r} stands for another command.")
        if known is not None and known.is_over:
            return known
        if known is not None and record.is_gone:
            return await self._effects.finish(known.model_copy(update={"state": "lost", "ended_at": self._clock.now()}))
        return await self._keeper.ensure_awake(machine)


@asynccontextmanager
async def closing(telling: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Whoever leaves a generator before its end closes it: a connection may be open in it."""
    try:
        yield telling
    finally:
        if isinstance(telling, AsyncGenerator):
            with anyio.CancelScope(shield=True):
                await telling.aclose()


class _Patience:
    """How long to go on asking a machine that does not answer where it was. Whatever is said, it has an end."""

    def __init__(self) -> None:
        self._until: float | None = None
        self._next_s = _SHORTEST_S
        self._asleep_s = 0.0
        self._next_asleep_s = _SHORTEST_S

    async def wait_or_raise(self, error: OutliveError) -> None:
        if error.code == "machine.hibernated":
            await self._wait_asleep(error)
            return
        now = anyio.current_time()
        if self._until is None:
            self._until = now + RETRY_WITHIN_S
        if error.code not in MOVED or now + self._next_s > self._until:
            if isinstance(error, FencedError):
                raise UnavailableError("machine.moving", f"The machine is on the move; ask again. ({error.message})")
            raise error
        await anyio.sleep(self._next_s)
        self._next_s = min(self._next_s * 2, _LONGEST_S)

    async def _wait_asleep(self, error: OutliveError) -> None:
        """No trouble: it is woken, and then asked anew. A wake takes its own time, which does not count; one that is
        said to be asleep whenever it was just woken is given up."""
        if self._asleep_s + self._next_asleep_s > ASLEEP_WITHIN_S:
            raise error
        self._until, self._next_s = None, _SHORTEST_S
        self._asleep_s += self._next_asleep_s
        await anyio.sleep(self._next_asleep_s)
        self._next_asleep_s = min(self._next_asleep_s * 2, _LONGEST_S)
