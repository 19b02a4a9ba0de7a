"""A machine that is up on this node: its sandbox, the socket of its guest, its gate, and how long it has been quiet.

Rule 1: whoever talks to the guest goes through `use`, which waits until a checkpoint is over and thaws an idle one.
Rule 2: an end is for ever: a machine that comes up here again is another resident, of another generation.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import anyio.lowlevel

from outlive.base import Clock, ConflictError, FencedError, MachineId, OutliveError, UnavailableError
from outlive.machine.guest_link import Guest, GuestDoor
from outlive.machine.keeper import hibernated_meanwhile
from outlive.machine.node.gate import Gate
from outlive.machine.sandbox import Sandbox, Sandboxes
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Machine

End = Literal["hibernated", "lost", "removed"]
Freeze = Literal["idle", "halted"]  # because it was idle; by a person

_log = logging.getLogger(__name__)

_TURNS_TO_SAY = 25  # of the event loop, until a word that was given to the connection is on it
_SAY_WITHIN_S = 2.0
_GATE_WITHIN_S = 120.0
_GUEST_WITHIN_S = 20.0


class Resident:
    def __init__(self, machine: Machine, sandbox: Sandbox, door: GuestDoor, sandboxes: Sandboxes, clock: Clock) -> None:
        self.id: MachineId = machine.id
        self.generation = machine.generation
        self.spec: MachineSpec = machine.spec
        self.sandbox = sandbox
        self.door = door
        self.gate = Gate()
        self.frozen: set[Freeze] = set()
        self.has_lease = True  # while not, all of this node stands still: see `watch.keep_lease`
        self.attached = 0  # transfers, previews, operators
        self.commands = 0  # that run
        self.is_dirty = False  # something was asked of it since its last checkpoint
        self.saved_at = clock.monotonic()
        self.ended: End | None = None
        self.counted = anyio.Event()  # the records say that this generation is the machine
        self.scope = anyio.CancelScope()  # of everything that is done for it alone
        self.on_end: list[Callable[[End], None]] = []
        self._sandboxes = sandboxes
        self._clock = clock
        self._used_at = clock.monotonic()
        self._freezing = anyio.Lock()
        self._frozen_at = clock.monotonic()

    @property
    def quiet_s(self) -> float:
        return self._clock.monotonic() - self._used_at

    def touch(self) -> None:
        self._used_at = self._clock.monotonic()

    def end(self, how: End) -> None:
        if self.ended is None:
            self.ended = how
            self.scope.cancel()
            for hear in self.on_end:
                hear(how)

    def check(self) -> None:
        """An error that says why it cannot be used."""
        if self.ended == "hibernated":
            raise hibernated_meanwhile(self.id)
        if self.ended is not None:
            raise FencedError("machine.fenced", f"Machine {self.id!r} at generation {self.generation} is over.")
        if "halted" in self.frozen:
            raise ConflictError("machine.paused", f"Machine {self.id!r} was paused by a person; resume it first.")
        if not self.has_lease:
            raise UnavailableError("node.no_lease", "This node has lost contact with the others; try again.")

    @asynccontextmanager
    async def staying(self) -> AsyncIterator[None]:
        """Inside, it is neither saved nor ended. Whoever comes while it is being put to sleep waits, and is told."""
        self.check()
        async with self.gate.inside(_GATE_WITHIN_S):
            self.check()
            yield

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Guest]:
        """The guest, for a short question or to start something."""
        async with self.staying():
            self.touch()
            if "idle" in self.frozen:
                await self.unfreeze("idle")
            yield await self.door.guest(_GUEST_WITHIN_S)
        self.touch()

    async def wake_up(self) -> None:
        """Whoever has a connection of its own to the guest asks this before it is used: it waits as `use` does. For
        keys that somebody types, so it costs nothing when there is nothing to wait for."""
        self.check()
        if self.frozen or self.gate.is_shut:
            async with self.use():
                pass
        self.touch()

    @asynccontextmanager
    async def attach(self) -> AsyncIterator[None]:
        """Count somebody who stays for a while."""
        self.attached += 1
        try:
            yield
        finally:
            self.attached -= 1
            self.touch()

    async def freeze(self, why: Freeze) -> None:
        async with self._freezing:
            if not self.frozen:
                await self._sandboxes.freeze(self.sandbox)
                self._frozen_at = self._clock.monotonic()
            self.frozen.add(why)

    async def unfreeze(self, why: Freeze) -> None:
        """It runs again only when no other reason is left."""
        async with self._freezing:
            if why in self.frozen and len(self.frozen) == 1:
                await self._thaw()
            self.frozen.discard(why)
            self.touch()

    async def _thaw(self) -> None:
        """Its guest finds the word that it was frozen, and for how long, before it looks at its timeouts."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._say_slept, self._clock.monotonic() - self._frozen_at)
            for _ in range(_TURNS_TO_SAY):
                await anyio.lowlevel.checkpoint()
            await self._sandboxes.thaw(self.sandbox)

    async def _say_slept(self, seconds: float) -> None:
        try:
            guest = await self.door.guest(_SAY_WITHIN_S)
            await guest.slept(seconds, _SAY_WITHIN_S)
        except OutliveError as error:  # then a command's timeout may count the time that it was frozen
            _log.warning("machine %s was not told that it was frozen: %s", self.id, error.message)


class Residents:
    """Who is up here."""

    def __init__(self) -> None:
        self._residents: dict[MachineId, Resident] = {}
        self.unsaved: dict[MachineId, str] = {}  # whose sandbox ended and whose disk is kept: why it is not saved yet

    def __iter__(self) -> Iterator[Resident]:
        return iter(list(self._residents.values()))

    def __len__(self) -> int:
        return len(self._residents)

    def find(self, machine: MachineId) -> Resident | None:
        return self._residents.get(machine)

    def get(self, machine: MachineId, generation: int) -> Resident:
        resident = self._residents.get(machine)
        self.check_saved(machine)
        if resident is None or resident.generation != generation:
            here = "is not here" if resident is None else f"is at generation {resident.generation}"
            raise FencedError("machine.fenced", f"Machine {machine!r} {here}; read its record again.")
        return resident

    def check_saved(self, machine: MachineId) -> None:
        """An error that says what it waits for, of one whose disk is kept."""
        if machine in self.unsaved and machine not in self._residents:
            raise UnavailableError("machine.unsaved", f"Machine {machine!r} cannot be used: {self.unsaved[machine]}.")

    def add(self, resident: Resident) -> None:
        self._residents[resident.id] = resident
        self.unsaved.pop(resident.id, None)
        resident.counted.set()

    def remove(self, resident: Resident) -> None:
        if self._residents.get(resident.id) is resident:
            del self._residents[resident.id]


def is_guest_away(error: OutliveError) -> bool:
    return error.code in ("machine.guest_away", "machine.stream_closed")
