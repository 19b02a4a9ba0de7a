"""How a node finds its sandboxes again, and what becomes of those that died or are another's by now.

Rule 1: a sandbox here whose record does not name this node and its generation is destroyed, whatever it is doing.
Rule 2: a disk is given up only when what could be saved of it is, and that is written down. Until then the record says
        why the machine cannot be used (`rescue`).
Rule 3: where there is no disk any more, as after the host was started again, there is nothing to wait for: the machine
        is lost, and comes back from its last checkpoint.
"""

import logging
from collections import defaultdict
from contextlib import suppress

import anyio

from outlive.base import FencedError, MachineId, NotFoundError, OutliveError
from outlive.machine import lifecycle
from outlive.machine.node import up
from outlive.machine.node.housing import Housing
from outlive.machine.node.rescue import Rescue
from outlive.machine.node.resident import Resident
from outlive.machine.records import MachineFilter
from outlive.machine.sandbox import Sandbox, SandboxState
from outlive.machine.status import Machine

_log = logging.getLogger(__name__)

_NOTHING_LEFT = "its sandbox and its disk are gone"


class Adoption:
    def __init__(self, housing: Housing) -> None:
        self._housing = housing
        self._parts = housing.parts
        self._rescues: defaultdict[tuple[MachineId, int], Rescue] = defaultdict(Rescue)

    async def adopt(self) -> None:
        """Find every sandbox again: take up what is ours, let go of what is not, mourn what died."""
        parts = self._parts
        for sandbox in await parts.sandboxes.find_all():
            async with self._housing.locks[sandbox.machine]:
                try:
                    await self._adopt_one(sandbox)
                except OutliveError as error:
                    _log.error("sandbox of machine %s: %s", sandbox.machine, error.message)
                except OSError as error:  # of its folder, its mounts; one machine's trouble is not the node's
                    _log.error("sandbox of machine %s: %s", sandbox.machine, error)
        await self.mourn()
        self._housing.tasks.start_soon(self._housing.terminals.sweep, self._housing.is_in_hand)

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
            await self._destroy(sandbox)
            return
        self._housing.tasks.start_soon(self._destroy_in_turn, sandbox)

    async def _destroy_in_turn(self, sandbox: Sandbox) -> None:
        async with self._housing.locks[sandbox.machine]:
            try:
                await self._destroy(sandbox)
            except OutliveError as error:
                _log.error("sandbox of machine %s: %s", sandbox.machine, error.message)

    async def _adopt_one(self, sandbox: Sandbox) -> None:
        parts = self._parts
        if not await self.is_ours(sandbox):
            _log.info("a sandbox of machine %s is of the past: destroyed", sandbox.machine)
            await self._destroy(sandbox)
            return
        record = await parts.machines.get(sandbox.machine)
        if record.is_booting or record.state not in ("running", "paused"):
            await self._destroy(sandbox)
            return
        state = await parts.sandboxes.state(sandbox)
        if state in ("dead", "prepared"):
            # Its base and the guest's runtime may be gone as well: they are not asked for.
            await self._lose(sandbox, "its sandbox ended")
            return
        base = await parts.bases.base(record.spec.base, record.spec.base_key)
        resident = await self._housing.house(record, sandbox, base)
        try:
            await self._move_in(resident, record, state)
        finally:
            # Its guest would stay at the door of one whom nobody knows, and never come to the next.
            if self._housing.residents.find(resident.id) is not resident:
                resident.end("removed")

    async def _move_in(self, resident: Resident, record: Machine, state: SandboxState) -> None:
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
                with suppress(FencedError):  # it has moved on meanwhile
                    await self._write_off(record, _NOTHING_LEFT)
                self._housing.settle_soon(record.id)

    async def lose(self, resident: Resident, reason: str) -> None:
        """A sandbox that ended by itself. If a step has it in hand this does nothing: whoever looks comes again."""
        lock = self._housing.locks[resident.id]
        if not lock.locked():
            async with lock:
                await self._housing.terminals.flush(resident)
                resident.end("lost")
                self._housing.residents.remove(resident)
                await self._lose(resident.sandbox, reason)

    async def _lose(self, sandbox: Sandbox, reason: str) -> None:
        """Its filesystem is saved if it is there, its memory and what ran in it are gone. Its disk is given up only
        when all of this is written down; what is worth trying again is raised before that, and the disk stays."""
        parts, machine = self._parts, sandbox.machine
        if parts.clock.monotonic() < self._rescues[machine, sandbox.generation].due_at:
            return
        await self._housing.terminals.salvage(machine, sandbox.generation)
        record = await parts.machines.get(machine)
        try:
            lifecycle.check_holder(record, parts.node, sandbox.generation)
            reason = await self._salvage(record, sandbox, reason)
            await self._write_off(await parts.machines.get(machine), reason)
        except FencedError:
            _log.info("machine %s is another's by now", machine)
        with anyio.CancelScope(shield=True):
            await self._destroy(sandbox)
        self._housing.settle_soon(machine)

    async def _salvage(self, record: Machine, sandbox: Sandbox, reason: str) -> str:
        """Save its filesystem. Returns why the machine is lost: with the reason for which there is nothing to save."""
        if not await self._parts.sandboxes.has_disk(sandbox):
            return _NOTHING_LEFT
        rescue = self._rescues[record.id, sandbox.generation]
        try:
            await self._housing.saving.salvage(record, sandbox, rescue)
        except FencedError:
            raise
        except OutliveError as error:
            why = error.message.rstrip(".")
            if rescue.note(error, self._parts.clock.monotonic()):
                await self._keep_disk(record, f"{reason}, and its files are not saved yet: {why}")
                raise
            _log.error("machine %s: its filesystem could not be saved: %s", record.id, why)
            return f"{reason}, and its files could not be saved: {why}"
        return reason

    async def _keep_disk(self, record: Machine, reason: str) -> None:
        """Whoever looks at the machine, or wants to use it, is told what it waits for. Its history: once."""
        unsaved = self._housing.residents.unsaved
        is_new = record.id not in unsaved
        unsaved[record.id] = reason
        if is_new:
            parts, now = self._parts, self._parts.clock.now()
            await parts.machines.change(
                record.id,
                lambda found: lifecycle.keep_disk(found, parts.node, record.generation, now, reason=reason),
            )

    async def _write_off(self, record: Machine, reason: str) -> None:
        """It is lost. What ran in it is too, but for what its last checkpoint may hold: its wake finds that out."""
        parts, now = self._parts, self._parts.clock.now()
        above = 0
        if record.checkpoint is not None:
            checkpoint = await parts.checkpoints.get(record.checkpoint)
            above = checkpoint.effects_mark if checkpoint.has_memory else 0

        def decide(found: Machine) -> lifecycle.Change:
            if found.generation != record.generation:
                return lifecycle.NO_CHANGE
            return lifecycle.declare_lost(found, parts.node, now, reason=reason)

        await parts.effects.lose(record.id, above=above, at=now, holder=(parts.node, record.generation))
        await parts.machines.change(record.id, decide)

    async def _destroy(self, sandbox: Sandbox) -> None:
        await self._parts.sandboxes.destroy(sandbox)
        if self._rescues.pop((sandbox.machine, sandbox.generation), None) is not None:
            self._housing.residents.unsaved.pop(sandbox.machine, None)
