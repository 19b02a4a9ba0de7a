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
from outlive.machine.records import Renewal
from outlive.machine.sandbox import Guard
from outlive.machine.status import Node as NodeRecord

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_LEASE_LOOK_S = 0.25
_GATE_WITHIN_S = 0.5
_RENEW_WITHIN_S = 4.0
_LOOK_WITHIN_S = 2.0


async def keep_lease(
    node: Node,
    guard: Guard,
    describe: NodeRecord,
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Renew for ever, and tell the guard until when our machines may run. When we could not for too long they stand
    still, by the guard; with contact again we find out what is still ours before the rest may go on. `started` is
    called when the first lease was granted and nothing runs here that is not ours."""
    parts = node.parts
    word = _Word(guard)
    # What runs here may be somebody else's by now: a start is like a contact after a long time.
    lease = Lease(guard.now(), is_frozen=True)
    next_beat = lease.asked_at
    is_started = is_granted = False
    while True:
        now = guard.now()
        if now >= next_beat:
            next_beat = now + parts.beat_s
            if (renewal := await _renew(node, describe)) is not None:
                is_granted = True
                lease = lease.renewed(now, guard.now(), was_over=renewal.was_over, lease_s=parts.lease_s)
                _mark(node, has_lease=not lease.is_frozen and word.may_run)
                await word.say(now + parts.lease_s, may_run=not lease.is_frozen)
            # A node without a lease asks more often: nothing runs here meanwhile.
            next_beat = min(next_beat, now + 1.0) if lease.is_frozen else next_beat
        match lease.decide(guard.now(), lease_s=parts.lease_s):
            case "freeze":
                _log.error("no contact for %.0f s: all machines of this node stand still", parts.lease_s)
                lease = lease._replace(is_frozen=True)
                _mark(node, has_lease=False)
                await word.say(now, may_run=False)
            case "recover" if is_granted and await _recover(node):
                lease = lease._replace(is_frozen=False)
                await word.say(lease.asked_at + parts.lease_s, may_run=True)
            case _:
                await word.say_again()
        _mark(node, has_lease=not lease.is_frozen and word.may_run)
        if not is_started and word.may_run:
            is_started = True
            task_status.started()
        await anyio.sleep(min(_LEASE_LOOK_S, parts.beat_s))


class _Word:
    """What the guard was told last. A word that does not get through (no descriptors are left, the disk is full) is
    said again, and ends nothing: until then the guard goes by the one before, which allows nothing new and is over
    when its time is. Then the guard stops everything here, whatever we think of our lease."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._last = (0.0, False)
        self._heard: tuple[float, bool] | None = None  # by the guard
        self._is_owed = False

    @property
    def may_run(self) -> bool:
        """Whether our machines run, by what the guard has heard."""
        return self._heard is not None and self._heard[1] and self._guard.now() < self._heard[0]

    async def say(self, until: float, *, may_run: bool) -> None:
        self._last = (until, may_run)
        try:
            await self._guard.keep(until, may_run=may_run)
        except (OSError, OutliveError) as error:
            if self._heard is None:
                raise  # a node that begins like this says so by its end: nothing of it is up yet
            if not self._is_owed:
                _log.error("the watchdog could not be told until when machines may run: %s", error)
            self._is_owed = True
        else:
            if self._is_owed:
                _log.info("the watchdog was told until when machines may run")
            self._heard, self._is_owed = self._last, False

    async def say_again(self) -> None:
        until, may_run = self._last
        if self._is_owed:
            await self.say(until, may_run=may_run)


def _mark(node: Node, *, has_lease: bool) -> None:
    for resident in node.residents:
        resident.has_lease = has_lease


async def _renew(node: Node, describe: NodeRecord) -> Renewal | None:
    parts = node.parts
    room = {"machines": float(len(node.taking_places)), "machines_limit": float(parts.limits.machines)}
    try:
        with anyio.fail_after(_RENEW_WITHIN_S):
            return await parts.nodes.renew(describe.model_copy(update={"capacity": room}), lease_s=parts.lease_s)
    except OutliveError as error:
        _log.warning("the lease could not be renewed: %s", error.message)
    except TimeoutError:
        _log.warning("the lease could not be renewed within %.0f s", _RENEW_WITHIN_S)
    return None


async def _recover(node: Node) -> bool:
    """Let go of all that came up elsewhere meanwhile. False if that could not be found out: then nothing may run."""
    try:
        for sandbox in await node.parts.sandboxes.find_all():
            if not await node.adoption.is_ours(sandbox):
                _log.warning("machine %s came up elsewhere: what is here is destroyed", sandbox.machine)
                await node.adoption.discard(sandbox)
    except (OutliveError, OSError) as error:
        _log.warning("what is still ours could not be found out: %s", error)
        return False
    return True


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
            except OSError as error:  # of a cgroup or a mount; one machine's trouble is not the node's
                _log.error("machine %s: %s", resident.id, error)


async def _look_at(node: Node, resident: Resident) -> None:
    parts = node.parts
    if await parts.sandboxes.state(resident.sandbox) == "dead":
        if resident.ended is None:
            _log.error("machine %s: its sandbox ended", resident.id)
            await node.adoption.lose(resident, "its sandbox ended")
        return
    activity = Activity(
        commands=resident.commands,
        attached=resident.attached,
        quiet_s=resident.quiet_s,
        is_frozen="idle" in resident.frozen,
        is_halted="halted" in resident.frozen or not resident.has_lease,
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
    elif after_s is not None and not resident.frozen and await _is_in_use(node, resident, after_s):
        resident.touch()
    else:
        await ask(node, resident.id, "hibernate")


async def _freeze_idle(node: Node, resident: Resident) -> None:
    async with resident.gate.shut(_GATE_WITHIN_S):
        policy = node.parts.idle.freeze_after_s
        if resident.commands or resident.attached or policy is None or resident.quiet_s < policy:
            return
        if await _is_in_use(node, resident, policy):
            resident.touch()
        else:
            await resident.freeze("idle")


async def _is_in_use(node: Node, resident: Resident, quiet_s: float) -> bool:
    """By what only its guest knows: terminals, previews, connections. One that is frozen was asked before that."""
    guest = await resident.door.guest(_GATE_WITHIN_S)
    found = await guest.activity(_GATE_WITHIN_S)
    is_printing = any(terminal.output_ago_s < quiet_s for terminal in found.terminals)
    # Its services are no use by themselves, and commands that somebody asked for were counted before.
    is_serving = found.previews or found.relayed or found.commands > len(resident.spec.start)
    return bool(is_printing or is_serving) or await node.terminals.has_job(resident, guest, _LOOK_WITHIN_S)


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
    node.housing.settle_soon(machine)
