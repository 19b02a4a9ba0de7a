"""How a machine comes up here: booted from its base, or woken from a checkpoint with its memory.

    new generation (record) ─ disk ─ fetch ─ start or restore ─ guest says hello ─ running (record)
Rule 1: the record names this node and the new generation before anything is made: whatever a crash leaves is known.
Rule 2: memory that cannot be restored is tried once; then the machine is booted from its filesystem, and says so.
"""

import logging
import secrets
from typing import NamedTuple

from outlive.base import (
    BrokenError,
    CheckpointId,
    CrashPoint,
    EffectId,
    InvalidError,
    MachineId,
    NotFoundError,
    OutliveError,
    UnavailableError,
    reach,
)
from outlive.machine import lifecycle
from outlive.machine.base import Base, Runtime
from outlive.machine.checkpoint import Manifest
from outlive.machine.command import Command
from outlive.machine.guest_link import Welcome
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.resident import Resident
from outlive.machine.node.restorable import why_not_restorable
from outlive.machine.sandbox import Footing, Sandbox, SandboxPlan
from outlive.machine.status import Checkpoint, Machine

_log = logging.getLogger(__name__)

_SERVICE_OUTPUT = 64 * 1024  # bytes that are kept of what a service prints; the rest is read and dropped


class Source(NamedTuple):
    """What a machine comes up from."""

    base: Base
    runtime: Runtime
    checkpoint: Checkpoint | None
    manifest: Manifest | None
    trouble: str | None  # why its memory is not restored, if it has one

    @property
    def has_memory(self) -> bool:
        return self.manifest is not None and self.trouble is None


async def find_source(parts: NodeParts, record: Machine) -> Source:
    """From its newest checkpoint, else from the one that it was born from, else from its base."""
    found: CheckpointId | None = record.checkpoint or record.origin
    if found is None:
        base = await parts.bases.base(record.spec.base, record.spec.base_key)
        return Source(base, await parts.bases.runtime(), None, None, None)
    checkpoint = await parts.checkpoints.get(found)
    manifest = await parts.store.read_manifest(found)
    base = await parts.bases.base(record.spec.base, manifest.facts.base_key)
    try:
        # Nobody knows the runtime of a sandbox that an older version has started.
        runtime = await parts.bases.runtime(manifest.facts.runtime_key or None)
    except NotFoundError:
        runtime = await parts.bases.runtime()
    trouble = why_not_restorable(manifest, base, runtime.key, parts.host)
    if record.is_memory_doubtful:
        trouble = "its memory could not be restored before"
    return Source(base, runtime, checkpoint, manifest, trouble)


async def prepare(parts: NodeParts, record: Machine, source: Source) -> Sandbox:
    """Disk and filesystem; nothing runs yet."""
    sandbox = await parts.sandboxes.prepare(
        SandboxPlan(
            machine=record.id,
            generation=record.generation,
            limits=record.spec.limits,
            layers=source.base.layers,
            runtime=source.runtime.path,
            argv=source.runtime.argv,
            hostname=hostname_of(record),
            is_read_only=record.spec.is_read_only,
            footing=Footing(
                base_fingerprint=source.base.fingerprint,
                runtime_key=source.runtime.key,
                runsc_version=parts.host.runsc_version,
                platform=parts.host.platform,
            ),
        )
    )
    if source.manifest is not None:
        if sandbox.upper_path.exists():
            sandbox.upper_path.rmdir()
        image = sandbox.image_path if source.has_memory else None
        if image is not None and image.exists():
            image.rmdir()
        await parts.store.fetch(source.manifest, image, sandbox.upper_path)
    reach(CrashPoint.UP_AFTER_PREPARE)
    return sandbox


async def start(parts: NodeParts, sandbox: Sandbox, source: Source) -> None:
    if source.has_memory:
        await parts.sandboxes.restore(sandbox)
    else:
        await parts.sandboxes.start(sandbox)
    reach(CrashPoint.UP_AFTER_START)


def is_memory_trouble(error: OutliveError, source: Source) -> bool:
    """Whether the same filesystem may still come up without its memory."""
    return source.has_memory and (
        isinstance(error, BrokenError | InvalidError) or error.code in ("machine.guest_away", "machine.guest_silent")
    )


async def start_services(resident: Resident) -> None:
    """What the environment wants to run in a machine that was booted."""
    if not resident.spec.start:
        return
    try:
        async with resident.use() as guest:
            for number, service in enumerate(resident.spec.start):
                command = Command(
                    effect=EffectId(f"service-{resident.generation}-{number}"),
                    argv=service,
                    user=resident.spec.user,
                    timeout_s=None,
                    output_limit=_SERVICE_OUTPUT,
                )
                async with guest.start(command):
                    pass
    except OutliveError as error:
        _log.warning("machine %s: its services did not start: %s", resident.id, error.message)


async def start_missing_services(resident: Resident) -> None:
    """The node before us may have died between a cold boot and its services. Each is started once: the guest knows
    those of this generation; those of an older one came with its memory."""
    if not resident.spec.start or resident.frozen:
        return
    try:
        async with resident.use() as guest:
            held = [each.effect for each in await guest.effects() if each.effect.startswith("service-")]
    except OutliveError as error:
        _log.warning("machine %s: its services are not known: %s", resident.id, error.message)
        return
    if all(effect.startswith(f"service-{resident.generation}-") for effect in held):
        await start_services(resident)


async def fail(parts: NodeParts, record: Machine, error: OutliveError, *, memory: bool) -> None:
    now = parts.clock.now()
    await parts.machines.change(
        record.id,
        lambda found: lifecycle.fail_up(
            found, parts.node, record.generation, now, was=record.state, reason=error.message, memory=memory
        ),
    )


def welcome_of(record: Machine, base: Base) -> Welcome:
    return Welcome(
        machine=record.id,
        generation=record.generation,
        hostname=hostname_of(record),
        seed=secrets.token_hex(32),
        env={**dict(base.env), **record.spec.env},
    )


def hostname_of(record: Machine) -> str:
    return f"m-{record.id.rpartition('_')[2][-12:]}"


def no_room(machine: MachineId) -> UnavailableError:
    return UnavailableError("node.full", f"This node has no room for machine {machine!r}; another may have.")
