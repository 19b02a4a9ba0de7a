"""What a node looks after by itself: its lease, sandboxes that die, machines that are idle, checkpoints by interval.

Each round is short and its own: what fails in one is said, and tried again in the next.
"""

import logging

import anyio
import anyio.abc

from outlive.base import MachineId, OutliveError
from outlive.machine import lifecycle
from outlive.machine.lifecycle import Verb
from outlive.machine.node.idle import Activity, decide_idle
from outlive.machine.node.lease import Lease
from outlive.machine.node.node import Node
from outlive.machine.node.resident import Resident
from outlive.machine.status import Node as NodeRecord

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_LEASE_LOOK_S = 0.25
_GATE_WITHIN_S = 0.5
_RENEW_WITHIN_S = 4.0


async def keep_lease(
    node: Node, describe: NodeRecord, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Renew for ever; freeze everything when we could not for too long, and find out what is still ours afterwards.
    `started` is called with the first renewal that was granted."""
    parts = node.parts
    lease = Lease(parts.clock.monotonic())
    next_beat = lease.asked_at
    is_started = False
    while True:
        now = parts.clock.monotonic()
        if now >= next_beat:
            next_beat = now + parts.beat_s
            if await _renew(node, describe):
                lease = lease.renewed(now)
                if not is_started:
                    is_started = True
                    task_status.started()
            # A node without a lease asks more often: nothing runs here meanwhile.
            next_beat = min(next_beat, now + 1.0) if lease.is_frozen else next_beat
        match lease.decide(parts.clock.monotonic(), lease_s=parts.lease_s):
            case "freeze":
                _log.error("no contact for %.0f s: all machines of this node are frozen", parts.lease_s)
                await _freeze_all(node)
                lease = lease._replace(is_frozen=True)
            case "recover":
                _log.warning("contact again: machines that are still ours go on")
                await _recover(node)
                lease = lease._replace(is_frozen=False)
            case "keep":
                pass
        await anyio.sleep(min(_LEASE_LOOK_S, parts.beat_s))


async def _renew(node: Node, describe: NodeRecord) -> bool:
    parts = node.parts
    room = {"machines": float(len(node.residents)), "machines_limit": float(parts.limits.machines)}
    try:
        with anyio.fail_after(_RENEW_WITHIN_S):
            await parts.nodes.renew(describe.model_copy(update={"capacity": room}), lease_s=parts.lease_s)
            return True
    except OutliveError as error:
        _log.warning("the lease could not be renewed: %s", error.message)
    except TimeoutError:
        _log.warning("the lease could not be renewed within %.0f s", _RENEW_WITHIN_S)
    return False


async def _freeze_all(node: Node) -> None:
    for resident in node.residents:
        try:
            await resident.freeze("lease")
        except OutliveError as error:
            _log.error("machine %s could not be frozen: %s; it is ended", resident.id, error.message)
            resident.end("removed")
            await node.parts.sandboxes.destroy(resident.sandbox)
            node.residents.remove(resident)


async def _recover(node: Node) -> None:
    parts = node.parts
    for resident in node.residents:
        try:
            record = await parts.machines.get(resident.id)
            lifecycle.check_holder(record, parts.node, resident.generation)
        except OutliveError as error:
            if error.kind not in ("not_found", "fenced"):
                continue
            _log.warning("machine %s came up elsewhere meanwhile: what is here is destroyed", resident.id)
            resident.end("removed")
            await parts.sandboxes.destroy(resident.sandbox)
            node.residents.remove(resident)
            continue
        await resident.unfreeze("lease")


async def watch_residents(node: Node) -> None:
    """For ever: who died, who is idle, who should be saved."""
    while True:
        await anyio.sleep(_LOOK_EVERY_S)
        for resident in node.residents:
            if resident.ended is not None:
                continue
            try:
                await _look_at(node, resident)
            except OutliveError as error:
                _log.warning("machine %s: %s", resident.id, error.message)


async def _look_at(node: Node, resident: Resident) -> None:
    parts = node.parts
    if await parts.sandboxes.state(resident.sandbox) == "dead":
        if resident.ended is None:
            _log.error("machine %s: its sandbox ended", resident.id)
            await node.lose(resident, "its sandbox ended")
        return
    activity = Activity(
        commands=resident.commands,
        attached=resident.attached,
        quiet_s=resident.quiet_s,
        is_frozen="idle" in resident.frozen,
        is_halted="halted" in resident.frozen or "lease" in resident.frozen,
    )
    match decide_idle(activity, parts.idle):
        case "freeze":
            await _freeze_idle(node, resident)
        case "hibernate":
            await _hibernate_idle(node, resident)
        case "stay":
            await _save_in_time(node, resident)


async def _hibernate_idle(node: Node, resident: Resident) -> None:
    record, after_s = await node.parts.machines.get(resident.id), node.parts.idle.hibernate_after_s
    if record.is_warm:  # one in a pool stays up for whoever comes: frozen it costs no time
        if not resident.frozen:
            await _freeze_idle(node, resident)
    elif after_s is not None and (node.parts.clock.now() - record.changed_at).total_seconds() < after_s:
        resident.touch()  # it was just claimed from its pool, which nobody told us
    else:
        await ask(node, resident.id, "hibernate")


async def _freeze_idle(node: Node, resident: Resident) -> None:
    async with resident.gate.shut(_GATE_WITHIN_S):
        policy = node.parts.idle.freeze_after_s
        if resident.commands or resident.attached or policy is None or resident.quiet_s < policy:
            return
        guest = await resident.door.guest(_GATE_WITHIN_S)
        found = await guest.activity(_GATE_WITHIN_S)
        is_quiet = all(terminal.output_ago_s >= policy for terminal in found.terminals)
        # Nothing runs but its services: commands that somebody asked for were counted above.
        only_services = found.commands <= len(resident.spec.start)
        if is_quiet and only_services and not found.previews and not found.relayed:
            await resident.freeze("idle")
        else:
            resident.touch()


async def _save_in_time(node: Node, resident: Resident) -> None:
    every = node.parts.checkpoint_every_s
    if every is None or not resident.is_dirty or resident.frozen:
        return
    if node.parts.clock.monotonic() - resident.saved_at >= every:
        resident.is_dirty = resident.commands > 0
        resident.saved_at = node.parts.clock.monotonic()
        await ask(node, resident.id, "checkpoint")


async def ask(node: Node, machine: MachineId, verb: Verb) -> None:
    """Ask for it as anybody would: by the record, and its workflow."""
    parts = node.parts
    now = parts.clock.now()
    await parts.machines.change(machine, lambda found: lifecycle.ask(found, verb, now))
    node.settle_soon(machine)
