"""The node: what it does for machines (`NodeSteps`). Finding them again is in `adoption`, what is shared in `housing`.

Rule: one step at a time per machine. Each begins and ends with the record; see `lifecycle`.
"""

import logging
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import anyio
import anyio.abc
import anyio.to_thread

from outlive.base import (
    ConflictError,
    CrashPoint,
    MachineId,
    OutliveError,
    UnavailableError,
    reach,
)
from outlive.machine import lifecycle
from outlive.machine.activities import forget_machine
from outlive.machine.node import rollback, up
from outlive.machine.node.adoption import Adoption
from outlive.machine.node.housing import Housing
from outlive.machine.node.leftovers import Leftovers
from outlive.machine.node.outputs import spool_of
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.resident import Resident
from outlive.machine.sandbox import Sandbox
from outlive.machine.status import Machine

_log = logging.getLogger(__name__)

_GUEST_WITHIN_S = 30.0
_GATE_WITHIN_S = 30.0


class Node:
    """Made by `open_node`."""

    def __init__(self, parts: NodeParts, tasks: anyio.abc.TaskGroup) -> None:
        self.parts = parts
        self.housing = housing = Housing(parts, tasks)
        self.adoption = Adoption(housing)
        self.leftovers = Leftovers(housing)
        self.residents = housing.residents
        self.runs = housing.runs
        self.saving = housing.saving
        self.terminals = housing.terminals
        self._locks = housing.locks
        self._coming: set[MachineId] = set()  # up; not residents yet

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
                await self.terminals.flush(resident)
                resident.end("removed")
                await self.parts.sandboxes.destroy(resident.sandbox)
                self.residents.remove(resident)
            await self.terminals.forget(machine)
            await anyio.to_thread.run_sync(
                partial(shutil.rmtree, spool_of(self.parts.path, machine), ignore_errors=True)
            )
            reach(CrashPoint.REMOVE_AFTER_DESTROY)
            parts = self.parts
            await forget_machine(parts.machines, parts.effects, parts.checkpoints, machine, parts.clock)
        self._locks.pop(machine, None)

    async def _holding(self, machine: MachineId, step: lifecycle.Step) -> Resident | None:
        """The resident that a step is about; None if the step came late and is not due any more."""
        record = await self.parts.machines.get(machine)
        if not lifecycle.is_due(record, step):
            return None
        lifecycle.check_holder(record, self.parts.node, record.generation)
        resident = self.residents.find(machine)
        self.residents.check_saved(machine)
        if resident is None or resident.generation != record.generation:
            raise UnavailableError("machine.not_here", f"Machine {machine!r} is not up on this node; try again.")
        return resident

    # ── coming up ──

    async def _come_up(self, machine: MachineId) -> None:
        record = await self.parts.machines.get(machine)
        if self._is_up(record):  # a step that is run again
            return await self.runs.take_up(self.residents.get(machine, record.generation))
        with self._place(machine):
            await self._come_up_here(machine)

    @property
    def taking_places(self) -> set[MachineId]:
        """Those that are up here, and those that are coming up."""
        return {resident.id for resident in self.residents} | self._coming

    def has_room_besides(self, coming: int) -> bool:
        """Whether one more may be asked for, while so many that are not up yet are on their way here."""
        return len(self.residents) + coming < self.parts.limits.machines

    @contextmanager
    def _place(self, machine: MachineId) -> Iterator[None]:
        """Inside, it counts as one that is up here: many may come at once, and a boot takes its time."""
        if len(self.taking_places - {machine}) >= self.parts.limits.machines:
            raise up.no_room(machine)
        self._coming.add(machine)
        try:
            yield
        finally:
            self._coming.discard(machine)

    async def _come_up_here(self, machine: MachineId) -> None:
        parts = self.parts
        for is_last in (False, True):
            try:
                record = await self._begin_up(machine)
            except ConflictError as error:
                # Somebody sent it back to sleep. Were this a failure, whoever wants it up by now would be told so.
                if error.code == lifecycle.NOT_WANTED:
                    return
                raise
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
            undo.resident = resident = await self.housing.house(record, sandbox, source.base)
            await up.start(parts, sandbox, source)
            guest = await resident.door.guest(_GUEST_WITHIN_S)
            gone = await rollback.settle_effects(parts, record, source, guest)
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
        self.terminals.take_up(resident)
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

    async def drain(self) -> list[MachineId]:
        """Hibernate everybody, without a workflow: for the end of a node. One that a person has paused is not thawed
        for it: its filesystem is saved, its memory is not. Returns those that could not be saved; they stay."""
        stuck = list(self.residents.unsaved)
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
            await self.terminals.flush(resident)
            saved = await self.saving.salvage(record, resident.sandbox)
            await parts.machines.change(
                resident.id,
                lambda found: lifecycle.end_hibernate(found, parts.node, resident.generation, saved.id, now),
            )
            resident.end("hibernated")
            await parts.effects.lose(resident.id, above=0, at=now)
            await parts.sandboxes.destroy(resident.sandbox)
        self.residents.remove(resident)


class _Undo:
    sandbox: Sandbox | None = None
    resident: Resident | None = None


@asynccontextmanager
async def open_node(parts: NodeParts, *, is_adopting: bool = True) -> AsyncIterator[Node]:
    """A node that has found its sandboxes again; if not `is_adopting` it does so when its lease is there, by `adopt`.
    Leaving it leaves them running."""
    async with anyio.create_task_group() as tasks:
        node = Node(parts, tasks)
        tasks.start_soon(node.terminals.watch_leases)
        if is_adopting:
            await node.adoption.adopt()
        yield node
        tasks.cancel_scope.cancel()
