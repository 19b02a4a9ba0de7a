"""How a node finds its sandboxes again, and what becomes of those that died or are another's by now.

Rule 1: a sandbox here whose record does not name this node and its generation is destroyed, whatever it is doing.
Rule 2: a disk is given up only when what could be saved of it is, and that is written down.
"""

import logging

import anyio

from outlive.base import FencedError, NotFoundError, OutliveError
from outlive.machine import lifecycle
from outlive.machine.node import up
from outlive.machine.node.housing import Housing
from outlive.machine.node.resident import Resident
from outlive.machine.records import MachineFilter
from outlive.machine.sandbox import Sandbox, SandboxState
from outlive.machine.status import Machine

_log = logging.getLogger(__name__)


class Adoption:
    def __init__(self, housing: Housing) -> None:
        self._housing = housing
        self._parts = housing.parts

    async def adopt(self) -> None:
        """Find every sandbox again: take up what is ours, let go of what is not, mourn what died."""
        parts = self._parts
        for sandbox in await parts.sandboxes.find_all():
            async with self._housing.locks[sandbox.machine]:
                try:
                    await self._adopt_one(sandbox)
                except OutliveError as error:
                    _log.error("sandbox of machine %s: %s", sandbox.machine, error.message)
        await self.mourn()
        self._housing.tasks.start_soon(self._housing.terminals.sweep)

    async def tend(self, sandbox: Sandbox) -> None:
        """What no step has in hand is as the records say: taken up, or destroyed. For what failed half-way, or was
        done without our hearing of it."""
        lock = self._housing.locks[sandbox.machine]
        if lock.locked():
            return
        async with lock:
            resident = self._housing.residents.find(sandbox.machine)
            if resident is None or resident.generation != sandbox.generation:
                if sandbox.path.exists():
                    await self._adopt_one(sandbox)
            elif not await self.is_ours(sandbox):
                _log.error("machine %s is another's by now: what is here is destroyed", sandbox.machine)
                await self.discard(sandbox)
            elif await self._parts.sandboxes.state(sandbox) == "paused":  # nobody saves it, or it would be locked
                await self._parts.sandboxes.resume(sandbox)
                resident.door.open()

    async def is_ours(self, sandbox: Sandbox) -> bool:
        """Whether the records name this node and its generation."""
        try:
            record = await self._parts.machines.get(sandbox.machine)
            lifecycle.check_holder(record, self._parts.node, sandbox.generation)
        except (NotFoundError, FencedError):
            return False
        return True

    async def discard(self, sandbox: Sandbox) -> None:
        """End one that is not ours any more. It does not get to run again, and nobody waits for it: a step may have it
        in hand, and ends by its own deadline."""
        resident = self._housing.residents.find(sandbox.machine)
        if resident is not None and resident.generation == sandbox.generation:
            resident.end("removed")
            self._housing.residents.remove(resident)
        try:
            await self._parts.sandboxes.freeze(sandbox)
        except OutliveError:  # nothing runs in it yet, or it cannot be frozen
            await self._parts.sandboxes.destroy(sandbox)
            return
        self._housing.tasks.start_soon(self._destroy_in_turn, sandbox)

    async def _destroy_in_turn(self, sandbox: Sandbox) -> None:
        async with self._housing.locks[sandbox.machine]:
            try:
                await self._parts.sandboxes.destroy(sandbox)
            except OutliveError as error:
                _log.error("sandbox of machine %s: %s", sandbox.machine, error.message)

    async def _adopt_one(self, sandbox: Sandbox) -> None:
        parts = self._parts
        if not await self.is_ours(sandbox):
            _log.info("a sandbox of machine %s is of the past: destroyed", sandbox.machine)
            await parts.sandboxes.destroy(sandbox)
            return
        record = await parts.machines.get(sandbox.machine)
        if record.is_booting or record.state not in ("running", "paused"):
            await parts.sandboxes.destroy(sandbox)
            return
        state = await parts.sandboxes.state(sandbox)
        base = await parts.bases.base(record.spec.base, record.spec.base_key)
        resident = await self._housing.house(record, sandbox, base)
        try:
            await self._move_in(resident, record, state)
        finally:
            # Its guest would stay at the door of one whom nobody knows, and never come to the next.
            if self._housing.residents.find(resident.id) is not resident:
                resident.end("removed")

    async def _move_in(self, resident: Resident, record: Machine, state: SandboxState) -> None:
        if state in ("dead", "prepared"):
            await self._lose(resident, "its sandbox ended")
            return
        if state == "frozen":
            resident.frozen.add("halted" if record.state == "paused" else "idle")
        elif state == "paused":
            await self._parts.sandboxes.resume(resident.sandbox)
        if record.state == "paused" and state != "frozen":
            await resident.freeze("halted")
        self._housing.residents.add(resident)
        _log.info("machine %s is here again", record.id)
        self._housing.terminals.take_up(resident)
        await self._housing.runs.take_up(resident)
        self._housing.tasks.start_soon(up.start_missing_services, resident)

    async def mourn(self) -> None:
        """Records that name this node and have nothing here: their disk is gone too."""
        parts = self._parts
        here = {sandbox.machine for sandbox in await parts.sandboxes.find_all()}
        found = await parts.machines.list(MachineFilter(node=parts.node, is_warm=None), limit=10_000)
        for record in found:
            is_up = record.state in ("running", "paused")
            is_here = record.id in here or self._housing.residents.find(record.id) is not None
            if is_up and not is_here and not self._housing.locks[record.id].locked():
                await self._declare_lost(record, "its sandbox and its disk are gone")

    async def lose(self, resident: Resident, reason: str) -> None:
        """A sandbox that ended by itself. If a step has it in hand this does nothing: whoever looks comes again."""
        lock = self._housing.locks[resident.id]
        if not lock.locked():
            async with lock:
                await self._lose(resident, reason)

    async def _lose(self, resident: Resident, reason: str) -> None:
        """Its filesystem is saved, its memory and what ran in it are gone. Its disk is given up only when all of this
        is written down; what is worth trying again is raised before that, and the disk stays."""
        parts = self._parts
        await self._housing.terminals.salvage(resident)
        resident.end("lost")
        self._housing.residents.remove(resident)
        record = await parts.machines.get(resident.id)
        holder = (parts.node, resident.generation)
        try:
            lifecycle.check_holder(record, *holder)
            await self._salvage(record, resident.sandbox)
            await parts.effects.lose(resident.id, above=0, at=parts.clock.now(), holder=holder)
            await self._declare_lost(record, reason)
        except FencedError:
            _log.info("machine %s is another's by now", resident.id)
        with anyio.CancelScope(shield=True):
            await parts.sandboxes.destroy(resident.sandbox)
        self._housing.settle_soon(resident.id)

    async def _salvage(self, record: Machine, sandbox: Sandbox) -> None:
        try:
            await self._housing.saving.salvage(record, sandbox)
        except OutliveError as error:
            if error.is_retryable or isinstance(error, FencedError):
                raise
            _log.error("machine %s: its filesystem could not be saved: %s", record.id, error.message)

    async def _declare_lost(self, record: Machine, reason: str) -> None:
        now = self._parts.clock.now()

        def decide(found: Machine) -> lifecycle.Change:
            if found.generation != record.generation:
                return lifecycle.NO_CHANGE
            return lifecycle.declare_lost(found, self._parts.node, now, reason=reason)

        await self._parts.machines.change(record.id, decide)
