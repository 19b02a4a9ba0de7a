"""The node: what it does for machines (`NodeSteps`), how it finds its sandboxes again, and whom it houses.

Rule 1: one step at a time per machine. Each begins and ends with the record; see `lifecycle`.
Rule 2: a sandbox here whose record does not name this node and its generation is destroyed, whatever it is doing.
"""

import logging
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
import anyio.abc
import anyio.to_thread

from outlive.base import (
    CrashPoint,
    FencedError,
    MachineId,
    NotFoundError,
    OutliveError,
    UnavailableError,
    reach,
)
from outlive.machine import lifecycle
from outlive.machine.activities import forget_machine
from outlive.machine.base import Base
from outlive.machine.guest_link import open_door
from outlive.machine.node import up
from outlive.machine.node.egress import open_egress
from outlive.machine.node.outputs import spool_of
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.resident import Resident, Residents
from outlive.machine.node.runs import Runs
from outlive.machine.node.saving import Saving
from outlive.machine.records import MachineFilter
from outlive.machine.sandbox import Sandbox
from outlive.machine.status import Machine

_log = logging.getLogger(__name__)

_GUEST_WITHIN_S = 30.0
_GATE_WITHIN_S = 30.0


class Node:
    """Made by `open_node`."""

    def __init__(self, parts: NodeParts, tasks: anyio.abc.TaskGroup) -> None:
        self.parts = parts
        self.residents = Residents()
        self.runs = Runs(parts, tasks)
        self.saving = Saving(parts)
        self._tasks = tasks
        self._settling: set[MachineId] = set()
        self._locks: defaultdict[MachineId, anyio.Lock] = defaultdict(anyio.Lock)

    # ── steps ──

    async def boot(self, machine: MachineId) -> None:
        async with self._locks[machine]:
            await self._come_up(machine)

    async def wake(self, machine: MachineId) -> None:
        async with self._locks[machine]:
            await self._come_up(machine)

    async def freeze(self, machine: MachineId) -> None:
        async with self._locks[machine]:
            resident = await self._holding(machine, "freeze")
            if resident is None:
                return
            # Not through the gate: a person's stop does not wait for anybody.
            await resident.freeze("halted")
            now = self.parts.clock.now()
            await self.parts.machines.change(
                machine, lambda found: lifecycle.end_freeze(found, self.parts.node, resident.generation, now)
            )

    async def thaw(self, machine: MachineId) -> None:
        async with self._locks[machine]:
            resident = await self._holding(machine, "thaw")
            if resident is None:
                return
            await resident.unfreeze("halted")
            now = self.parts.clock.now()
            await self.parts.machines.change(
                machine, lambda found: lifecycle.end_thaw(found, self.parts.node, resident.generation, now)
            )

    async def checkpoint(self, machine: MachineId) -> None:
        async with self._locks[machine]:
            resident = await self._holding(machine, "checkpoint")
            if resident is not None:
                await self.saving.checkpoint(resident)

    async def hibernate(self, machine: MachineId) -> None:
        async with self._locks[machine]:
            resident = await self._holding(machine, "hibernate")
            if resident is not None:
                try:
                    await self.saving.hibernate(resident)
                finally:
                    if resident.ended is not None:
                        self.residents.remove(resident)

    async def remove(self, machine: MachineId) -> None:
        async with self._locks[machine]:
            resident = self.residents.find(machine)
            if resident is not None:
                resident.end("removed")
                await self.parts.sandboxes.destroy(resident.sandbox)
                self.residents.remove(resident)
            await anyio.to_thread.run_sync(
                partial(shutil.rmtree, spool_of(self.parts.path, machine), ignore_errors=True)
            )
            reach(CrashPoint.REMOVE_AFTER_DESTROY)
            await forget_machine(self.parts.machines, self.parts.checkpoints, machine, self.parts.clock)
        self._locks.pop(machine, None)

    async def _holding(self, machine: MachineId, step: lifecycle.Step) -> Resident | None:
        """The resident that a step is about; None if the step came late and is not due any more."""
        record = await self.parts.machines.get(machine)
        if not lifecycle.is_due(record, step):
            return None
        lifecycle.check_holder(record, self.parts.node, record.generation)
        resident = self.residents.find(machine)
        if resident is None or resident.generation != record.generation:
            raise UnavailableError("machine.not_here", f"Machine {machine!r} is not up on this node; try again.")
        return resident

    # ── coming up ──

    async def _come_up(self, machine: MachineId) -> None:
        parts = self.parts
        record = await parts.machines.get(machine)
        if self._is_up(record):  # a step that is run again
            return await self.runs.take_up(self.residents.get(machine, record.generation))
        if len(self.residents) >= parts.limits.machines:
            raise up.no_room(machine)
        for is_last in (False, True):
            record = await self._begin_up(machine)
            source: up.Source | None = None
            try:
                source = await up.find_source(parts, record)
                resident = await self._bring_up(record, source)
            except OutliveError as error:
                is_memory = source is not None and up.is_memory_trouble(error, source)
                _log.warning("machine %s did not come up: %s", machine, error.message)
                await up.fail(parts, record, error, memory=is_memory)
                if is_last or not is_memory:
                    raise
            else:
                # It is up, whatever fails from here on.
                return await (self.runs.take_up(resident) if source.has_memory else up.start_services(resident))

    async def _begin_up(self, machine: MachineId) -> Machine:
        now = self.parts.clock.now()
        record = await self.parts.machines.change(
            machine, lambda found: lifecycle.begin_up(found, self.parts.node, now)
        )
        reach(CrashPoint.UP_AFTER_BEGIN)
        return record

    def _is_up(self, record: Machine) -> bool:
        resident = self.residents.find(record.id)
        return (
            resident is not None
            and record.state in ("running", "paused")
            and record.node == self.parts.node
            and record.generation == resident.generation
        )

    async def _bring_up(self, record: Machine, source: up.Source) -> Resident:
        parts = self.parts
        async with self._undoing(record) as undo:
            undo.sandbox = sandbox = await up.prepare(parts, record, source)
            undo.resident = resident = await self._house(record, sandbox, source.base)
            await up.start(parts, sandbox, source)
            await resident.door.guest(_GUEST_WITHIN_S)
            gone = await up.settle_effects(parts, record, source)
            now = parts.clock.now()
            with anyio.CancelScope(shield=True):  # a record that says it is up, and a sandbox that is thrown away
                await parts.machines.change(
                    record.id,
                    lambda found: lifecycle.end_up(
                        found,
                        parts.node,
                        record.generation,
                        now,
                        base_key=source.base.key,
                        is_cold=source.manifest is None or not source.has_memory,
                        gone_effects=gone,
                    ),
                )
        reach(CrashPoint.UP_AFTER_RECORD)
        self.residents.add(resident)
        return resident

    @asynccontextmanager
    async def _undoing(self, record: Machine) -> AsyncIterator["_Undo"]:
        """Leave nothing of a machine that did not come up."""
        undo = _Undo()
        try:
            yield undo
        except BaseException:
            with anyio.CancelScope(shield=True):
                if undo.resident is not None:
                    undo.resident.end("removed")
                await self._destroy_all_of(record)
            raise

    async def _destroy_all_of(self, record: Machine) -> None:
        for sandbox in await self.parts.sandboxes.find_all():
            if sandbox.machine == record.id and sandbox.generation <= record.generation:
                await self.parts.sandboxes.destroy(sandbox)

    # ── housing ──

    async def _house(self, record: Machine, sandbox: Sandbox, base: Base) -> Resident:
        resident = await self._tasks.start(self._host, record, sandbox, base)
        assert isinstance(resident, Resident)
        return resident

    async def _host(
        self, record: Machine, sandbox: Sandbox, base: Base, *, task_status: anyio.abc.TaskStatus[Resident]
    ) -> None:
        """Keep the sockets of a machine open until it ends."""
        parts = self.parts
        async with AsyncExitStack() as stack:
            door = await stack.enter_async_context(open_door(sandbox.host_path, up.welcome_of(record, base)))
            await stack.enter_async_context(open_egress(parts, record, sandbox))
            resident = Resident(record, sandbox, door, parts.sandboxes, parts.clock)
            task_status.started(resident)
            with resident.scope:
                await anyio.sleep_forever()

    async def drain(self) -> list[MachineId]:
        """Hibernate everybody, without a workflow: for the end of a node. One that a person has paused is not thawed
        for it: its filesystem is saved, its memory is not. Returns those that could not be saved; they stay."""
        stuck = []
        for resident in self.residents:
            async with self._locks[resident.id]:
                try:
                    await self._drain_one(resident)
                except OutliveError as error:
                    _log.error("machine %s could not be hibernated: %s", resident.id, error.message)
                    stuck.append(resident.id)
        return stuck

    async def _drain_one(self, resident: Resident) -> None:
        parts, now = self.parts, self.parts.clock.now()
        if "halted" not in resident.frozen:
            await parts.machines.change(resident.id, lambda found: lifecycle.ask(found, "hibernate", now))
            await self.saving.hibernate(resident)
        else:
            record = await parts.machines.get(resident.id)
            saved = await self.saving.salvage(record, resident.sandbox)
            await parts.machines.change(
                resident.id,
                lambda found: lifecycle.end_hibernate(found, parts.node, resident.generation, saved.id, now),
            )
            resident.end("hibernated")
            await parts.effects.lose(resident.id, above=0, at=now)
            await parts.sandboxes.destroy(resident.sandbox)
        self.residents.remove(resident)

    # ── what was here before ──

    async def adopt(self) -> None:
        """Find every sandbox again: take up what is ours, let go of what is not, mourn what died."""
        parts = self.parts
        for sandbox in await parts.sandboxes.find_all():
            async with self._locks[sandbox.machine]:
                try:
                    await self._adopt_one(sandbox)
                except OutliveError as error:
                    _log.error("sandbox of machine %s: %s", sandbox.machine, error.message)
        await self.mourn()

    async def tend(self, sandbox: Sandbox) -> None:
        """What no step has in hand is as the records say: taken up, or destroyed. For what failed half-way, or was
        done without our hearing of it."""
        lock = self._locks[sandbox.machine]
        if lock.locked():
            return
        async with lock:
            resident = self.residents.find(sandbox.machine)
            if resident is None or resident.generation != sandbox.generation:
                if sandbox.path.exists():
                    await self._adopt_one(sandbox)
            elif await self.parts.sandboxes.state(sandbox) == "paused":  # nobody saves it, or it would be locked
                await self.parts.sandboxes.resume(sandbox)
                resident.door.open()

    async def is_ours(self, sandbox: Sandbox) -> bool:
        """Whether the records name this node and its generation."""
        try:
            record = await self.parts.machines.get(sandbox.machine)
            lifecycle.check_holder(record, self.parts.node, sandbox.generation)
        except (NotFoundError, FencedError):
            return False
        return True

    async def discard(self, sandbox: Sandbox) -> None:
        """End one that is not ours any more. It does not get to run again, and nobody waits for it: a step may have it
        in hand, and ends by its own deadline."""
        resident = self.residents.find(sandbox.machine)
        if resident is not None and resident.generation == sandbox.generation:
            resident.end("removed")
            self.residents.remove(resident)
        try:
            await self.parts.sandboxes.freeze(sandbox)
        except OutliveError:  # nothing runs in it yet, or it cannot be frozen
            await self.parts.sandboxes.destroy(sandbox)
            return
        self._tasks.start_soon(self._destroy_in_turn, sandbox)

    async def _destroy_in_turn(self, sandbox: Sandbox) -> None:
        async with self._locks[sandbox.machine]:
            try:
                await self.parts.sandboxes.destroy(sandbox)
            except OutliveError as error:
                _log.error("sandbox of machine %s: %s", sandbox.machine, error.message)

    async def _adopt_one(self, sandbox: Sandbox) -> None:
        parts = self.parts
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
        resident = await self._house(record, sandbox, base)
        if state in ("dead", "prepared"):
            await self._lose(resident, "its sandbox ended")
            return
        if state == "frozen":
            resident.frozen.add("halted" if record.state == "paused" else "idle")
        elif state == "paused":
            await parts.sandboxes.resume(sandbox)
        if record.state == "paused" and state != "frozen":
            await resident.freeze("halted")
        self.residents.add(resident)
        _log.info("machine %s is here again", record.id)
        await self.runs.take_up(resident)
        self._tasks.start_soon(up.start_missing_services, resident)

    async def mourn(self) -> None:
        """Records that name this node and have nothing here: their disk is gone too."""
        parts = self.parts
        here = {sandbox.machine for sandbox in await parts.sandboxes.find_all()}
        found = await parts.machines.list(MachineFilter(node=parts.node, is_warm=None), limit=10_000)
        for record in found:
            is_up = record.state in ("running", "paused")
            is_here = record.id in here or self.residents.find(record.id) is not None
            if is_up and not is_here and not self._locks[record.id].locked():
                await self._declare_lost(record, "its sandbox and its disk are gone")

    async def lose(self, resident: Resident, reason: str) -> None:
        """A sandbox that ended by itself. If a step has it in hand this does nothing: whoever looks comes again."""
        lock = self._locks[resident.id]
        if not lock.locked():
            async with lock:
                await self._lose(resident, reason)

    async def _lose(self, resident: Resident, reason: str) -> None:
        """Its filesystem is saved, its memory and what ran in it are gone. Its disk is given up only when all of this
        is written down; what is worth trying again is raised before that, and the disk stays."""
        parts = self.parts
        resident.end("lost")
        self.residents.remove(resident)
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
        self.settle_soon(resident.id)

    async def _salvage(self, record: Machine, sandbox: Sandbox) -> None:
        try:
            await self.saving.salvage(record, sandbox)
        except OutliveError as error:
            if error.is_retryable or isinstance(error, FencedError):
                raise
            _log.error("machine %s: its filesystem could not be saved: %s", record.id, error.message)

    def settle_soon(self, machine: MachineId) -> None:
        """Have done what its record asks for, in its own time."""
        if machine not in self._settling:
            self._settling.add(machine)
            self._tasks.start_soon(self._settle, machine)

    async def _declare_lost(self, record: Machine, reason: str) -> None:
        now = self.parts.clock.now()

        def decide(found: Machine) -> lifecycle.Change:
            if found.generation != record.generation:
                return lifecycle.NO_CHANGE
            return lifecycle.declare_lost(found, self.parts.node, now, reason=reason)

        await self.parts.machines.change(record.id, decide)

    async def _settle(self, machine: MachineId) -> None:
        try:
            await self.parts.settler.settle(machine)
        except OutliveError as error:
            _log.warning("machine %s: %s", machine, error.message)
        finally:
            self._settling.discard(machine)


class _Undo:
    sandbox: Sandbox | None = None
    resident: Resident | None = None


@asynccontextmanager
async def open_node(parts: NodeParts, *, is_adopting: bool = True) -> AsyncIterator[Node]:
    """A node that has found its sandboxes again; if not `is_adopting` it does so when its lease is there, by `adopt`.
    Leaving it leaves them running."""
    async with anyio.create_task_group() as tasks:
        node = Node(parts, tasks)
        if is_adopting:
            await node.adopt()
        yield node
        tasks.cancel_scope.cancel()
