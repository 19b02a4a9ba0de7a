"""Checkpoints of residents: quiesce, pause, save, store, verify; and only then, for a hibernation, destroy.

    record `making` ─ guest lets go ─ pause ─ memory image ─ store ─┬─ resume ─ verify ─ record `ready`
                                                                    └─ verify ─ record `ready` ─ hibernated ─ destroy
Rule 1: whatever fails, the machine goes on as it was; a half-made checkpoint is given up and swept later.
Rule 2: memory that cannot be saved is said (`has_memory`), never pretended.
Rule 3: a parent whose objects are damaged spoils no child: that is saved again, under another id, sharing nothing.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import anyio

from outlive.base import (
    BrokenError,
    CrashPoint,
    EffectId,
    MachineId,
    NotFoundError,
    OutliveError,
    new_checkpoint_id,
    reach,
)
from outlive.machine import lifecycle
from outlive.machine.checkpoint import CheckpointFacts, Manifest, Saved
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.rescue import Rescue
from outlive.machine.node.resident import Resident
from outlive.machine.node.terminals.hosts import TerminalHosts
from outlive.machine.reconciler import prune_checkpoints
from outlive.machine.sandbox import Sandbox
from outlive.machine.status import Checkpoint, Machine

_log = logging.getLogger(__name__)

_MAKING_WITHIN = timedelta(minutes=30)
_GATE_WITHIN_S = 30.0
_QUIESCE_WITHIN_S = 10.0


class Mark(NamedTuple):
    """What a checkpoint holds of its machine's effects: those up to `n`, and of those `under_way` not the end."""

    n: int
    under_way: tuple[EffectId, ...] = ()


class Saving:
    def __init__(self, parts: NodeParts, terminals: TerminalHosts) -> None:
        self._parts = parts
        self._terminals = terminals

    async def checkpoint(self, resident: Resident) -> Checkpoint:
        """One more checkpoint; the machine goes on."""

        async def save(shares: bool) -> Checkpoint:
            async with self._standing_still(resident) as (record, mark, has_memory):
                begun = await self._begin(record, mark, shares=shares)
                saved = await self._store(record, resident.sandbox, begun, has_memory=has_memory)
            return await self._finish(record, begun, saved)

        await self._terminals.flush(resident)
        ready = await _sharing_if_sound(resident.id, save)
        resident.saved_at = self._parts.clock.monotonic()
        return ready

    async def hibernate(self, resident: Resident) -> Checkpoint:
        """Its last checkpoint; the machine is gone from here when this returns."""
        parts = self._parts
        await self._terminals.flush(resident)
        async with self._standing_still(resident) as (record, mark, has_memory):
            await self._terminals.rest(resident)
            ready = await self._save(record, resident.sandbox, mark, has_memory=has_memory)
            reach(CrashPoint.HIBERNATE_BEFORE_RECORD)
            now = parts.clock.now()
            with anyio.CancelScope(shield=True):
                try:
                    await parts.machines.change(
                        record.id,
                        lambda found: lifecycle.end_hibernate(found, parts.node, resident.generation, ready.id, now),
                    )
                except OutliveError:
                    # It may be hibernated, and somebody else's next: it does not run again before the record was read.
                    resident.end("removed")
                    raise
            reach(CrashPoint.HIBERNATE_AFTER_RECORD)
            resident.end("hibernated")
            await parts.sandboxes.destroy(resident.sandbox)
        return ready

    async def salvage(self, record: Machine, sandbox: Sandbox, rescue: Rescue | None = None) -> Checkpoint:
        """The filesystem of a sandbox that is dead or cannot be asked. Nothing that ran in it is in it. With the
        `rescue` of a dead one, whose disk does not change any more, it goes on with what an earlier try has begun."""
        record = await self._begin_checkpoint(record.id, sandbox.generation)
        mark = await self._parts.effects.mark(record.id)
        if rescue is None:
            return await self._save(record, sandbox, Mark(mark), has_memory=False)

        async def save(shares: bool) -> Checkpoint:
            begun = rescue.going_on(shares, self._parts.clock.now())
            if begun is None:
                begun = await self._begin(record, Mark(mark), shares=shares)
                rescue.begin(shares, begun)
            if shares not in rescue.stored:
                rescue.stored[shares] = await self._store(record, sandbox, begun, has_memory=False)
            return await self._finish(record, begun, rescue.stored[shares])

        return await _sharing_if_sound(record.id, save)

    async def _begin_checkpoint(self, machine: MachineId, generation: int) -> Machine:
        """What is wanted from here on is not in it."""
        parts = self._parts
        return await parts.machines.change(
            machine, lambda found: lifecycle.begin_checkpoint(found, parts.node, generation)
        )

    async def _save(self, record: Machine, sandbox: Sandbox, mark: Mark, *, has_memory: bool) -> Checkpoint:
        """A checkpoint of what stands still until this returns."""

        async def save(shares: bool) -> Checkpoint:
            begun = await self._begin(record, mark, shares=shares)
            return await self._finish(record, begun, await self._store(record, sandbox, begun, has_memory=has_memory))

        return await _sharing_if_sound(record.id, save)

    @asynccontextmanager
    async def _standing_still(self, resident: Resident) -> AsyncIterator[tuple[Machine, Mark, bool]]:
        """Nothing moves in the machine: (its record, the mark of its effects, whether its memory could be saved)."""
        parts = self._parts
        async with resident.gate.shut(_GATE_WITHIN_S):
            resident.check()
            await resident.unfreeze("idle")
            record = await self._begin_checkpoint(resident.id, resident.generation)
            mark = await parts.effects.mark(resident.id)
            await self._quiesce(resident)
            resident.door.shut()
            try:
                await parts.sandboxes.pause(resident.sandbox)
                has_memory = await self._save_memory(resident)
                # It stands still, and what its guest said before that was heard meanwhile: what is not over by now
                # ends after this checkpoint, or is over in its guest's ledger.
                begun = await parts.effects.begun(resident.id)
                under_way = tuple(effect.id for effect in begun if effect.n <= mark)
                yield record, Mark(mark, under_way), has_memory
            finally:
                with anyio.CancelScope(shield=True):
                    if resident.ended is None:
                        try:
                            await parts.sandboxes.resume(resident.sandbox)
                        finally:
                            resident.door.open()

    async def _quiesce(self, resident: Resident) -> None:
        try:
            # The door is shut before the guest hangs up: it dials again at once, and a connection spoils the image.
            await resident.door.quiesce(_QUIESCE_WITHIN_S)
        except OutliveError as error:
            # A guest that does not answer still has its filesystem; its memory will say whether it can be saved.
            _log.warning("machine %s does not quiesce: %s", resident.id, error.message)

    async def _save_memory(self, resident: Resident) -> bool:
        try:
            await self._parts.sandboxes.save_memory(resident.sandbox)
        except BrokenError as error:
            _log.warning("machine %s: its memory cannot be saved: %s", resident.id, error.message)
            return False
        reach(CrashPoint.CHECKPOINT_AFTER_IMAGE)
        return True

    async def _begin(self, record: Machine, mark: Mark, *, shares: bool) -> Checkpoint:
        now = self._parts.clock.now()
        begun = Checkpoint(
            id=new_checkpoint_id(),
            machine=record.id,
            generation=record.generation,
            parent=(record.checkpoint or record.origin) if shares else None,
            effects_mark=mark.n,
            effects_under_way=mark.under_way,
            created_at=now,
            deadline_at=now + _MAKING_WITHIN,
        )
        return await self._parts.checkpoints.begin(begun, node=self._parts.node)

    async def _store(self, record: Machine, sandbox: Sandbox, begun: Checkpoint, *, has_memory: bool) -> Saved:
        parts = self._parts
        # Known of one that was up. Its base may be gone by now, and is not needed to save what differs from it.
        base_key = record.spec.base_key or (await parts.bases.base(record.spec.base, None)).key
        footing = sandbox.footing  # what it came up on, whatever this host has by now
        facts = CheckpointFacts(
            id=begun.id,
            machine=record.id,
            generation=record.generation,
            base_key=base_key,
            base_fingerprint=footing.base_fingerprint,
            runtime_key=footing.runtime_key,
            runsc_version=footing.runsc_version,
            platform=footing.platform,
            cpu_features=parts.host.cpu_features,
            spec=record.spec.model_dump(mode="json"),
        )
        saved = await parts.store.save(
            facts, sandbox.image_path if has_memory else None, sandbox.upper_path, await self._parent(begun)
        )
        reach(CrashPoint.CHECKPOINT_AFTER_STORE)
        return saved

    async def _parent(self, begun: Checkpoint) -> Manifest | None:
        if begun.parent is None:
            return None
        try:
            return await self._parts.store.read_manifest(begun.parent)
        except (NotFoundError, BrokenError) as error:  # then nothing is shared with it
            _log.warning("checkpoint %s: its parent cannot be read: %s", begun.id, error.message)
            return None

    async def _finish(self, record: Machine, begun: Checkpoint, saved: Saved) -> Checkpoint:
        parts = self._parts
        await parts.store.verify(saved.manifest)
        ready = begun.model_copy(
            update={
                "state": "ready",
                "has_memory": saved.manifest.has_memory,
                "total_bytes": saved.total_bytes,
                "new_bytes": saved.new_bytes,
            }
        )
        ready = await parts.checkpoints.finish(ready, node=parts.node)
        reach(CrashPoint.CHECKPOINT_AFTER_READY)
        now = parts.clock.now()
        await parts.machines.change(
            record.id,
            lambda found: lifecycle.end_checkpoint(
                found,
                parts.node,
                record.generation,
                ready.id,
                now,
                number=record.checkpoints_begun,
                has_memory=ready.has_memory,
            ),
        )
        await prune_checkpoints(parts.checkpoints, record.id)
        return ready


async def _sharing_if_sound(machine: MachineId, save: Callable[[bool], Awaitable[Checkpoint]]) -> Checkpoint:
    """`save` sharing what the parent has stored; if that turns out to be damaged, once more sharing nothing."""
    try:
        return await save(True)
    except BrokenError as error:
        if not error.code.startswith("checkpoint."):
            raise
        _log.warning("machine %s is saved again and shares nothing: %s", machine, error.message)
    return await save(False)
