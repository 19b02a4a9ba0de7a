"""The life of a machine, as a table: (observed, desired) -> next step. Pure.

Rule 1: everything that decides on a machine's state is in this file; nothing here acts.
Rule 2: a step may be run again at any time. It begins by changing the record (which fences whatever ran before) and
        ends by changing it again; a crash between the two leaves a record from which `next_step` finds the way.
Rule 3: memory is given up only where nothing else is left, and then the record says so.

    desired →     running              paused     hibernated            deleted
    observed ↓
    starting      boot                 boot       boot                  remove
    running       – (or checkpoint)    freeze     hibernate             remove
    paused        thaw                 –          refused when asked    remove
    hibernated    wake                 –          –                     remove
    lost          wake, if there is    –          –                     remove
                  a checkpoint
    deleted       –                    –          –                     –

Whatever is on a node that is gone for good is first declared lost. A boot that was begun and never came up is begun
again, as the next generation.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from outlive.base import CheckpointId, ConflictError, EffectId, FencedError, NodeId, NotFoundError, UnavailableError
from outlive.machine.status import Desired, EventKind, Machine, MachineEvent, State

Step = Literal["boot", "wake", "freeze", "thaw", "checkpoint", "hibernate", "remove", "declare_lost"]
Verb = Literal["pause", "resume", "hibernate", "wake", "checkpoint", "delete", "exec", "fork"]

_TABLE: dict[tuple[State, Desired], Step] = {
    ("starting", "running"): "boot",
    ("starting", "paused"): "boot",
    ("starting", "hibernated"): "boot",
    ("running", "paused"): "freeze",
    ("running", "hibernated"): "hibernate",
    ("paused", "running"): "thaw",
    ("hibernated", "running"): "wake",
    ("lost", "running"): "wake",
    **{(state, "deleted"): "remove" for state in ("starting", "running", "paused", "hibernated", "lost")},
}

NOT_WANTED = "machine.not_wanted"  # why a step that came late was not begun: no failure

# Steps that any node with room may take; all others are for the node that has the machine.
PLACED_STEPS: frozenset[Step] = frozenset({"boot", "wake"})


class Change(NamedTuple):
    """What becomes of a record: fields to replace, and lines for its history. An empty one changes nothing."""

    fields: Mapping[str, Any] = MappingProxyType({})
    events: tuple[MachineEvent, ...] = ()


NO_CHANGE = Change()


def next_step(machine: Machine, *, is_node_gone: bool) -> Step | None:
    """What to do now; None if nothing is left to do, or nothing can be done."""
    if machine.state == "deleted":
        return None
    if machine.is_on_node and is_node_gone:
        return "declare_lost"
    if machine.state == "running" and machine.desired == "running":
        return "checkpoint" if machine.checkpoints_made < machine.checkpoints_wanted else None
    step = _TABLE.get((machine.state, machine.desired))
    if machine.state == "lost" and step == "wake" and machine.checkpoint is None:
        return None
    return step


def is_due(machine: Machine, step: Step) -> bool:
    """Whether a step is still the next one, for a node that is still there. Whoever was told to take it asks before
    acting: a step may come late, when it was done by somebody else or is not wanted any more."""
    return next_step(machine, is_node_gone=False) == step


# ── what is asked ──


def ask(machine: Machine, verb: Verb, now: datetime) -> Change:
    """What a verb changes in what is wanted; an error that says what to do where it is refused."""
    if machine.state == "deleted" or (machine.desired == "deleted" and verb != "delete"):
        raise NotFoundError("machine.deleted", f"Machine {machine.id!r} was deleted.")
    if machine.state == "lost" and verb != "delete" and machine.checkpoint is None:
        raise ConflictError(
            "machine.lost", f"Machine {machine.id!r} is lost ({machine.reason}) and has no checkpoint; delete it."
        )
    is_paused = machine.state == "paused" or machine.desired == "paused"
    if is_paused and verb in ("hibernate", "checkpoint", "fork", "exec", "wake"):
        raise ConflictError("machine.paused", f"Machine {machine.id!r} was paused by a person; resume it first.")
    match verb:
        case "pause":
            if machine.state == "hibernated" or machine.desired == "hibernated":
                raise ConflictError("machine.hibernated", f"Machine {machine.id!r} is hibernated: nothing runs in it.")
            return _want(machine, "paused", now)
        case "resume" | "wake" | "exec":
            return _want(machine, "running", now)
        case "hibernate":
            return _want(machine, "hibernated", now)
        case "delete":
            return _want(machine, "deleted", now)
        case "checkpoint" | "fork":
            # It has a checkpoint that is all there is of it: no need to wake it for another.
            if machine.state in ("hibernated", "lost") and machine.desired == "hibernated":
                return NO_CHANGE
            # What is done from now on until it stands still is in one that has yet to begin, and in no other.
            wanted = max(machine.checkpoints_made, machine.checkpoints_begun) + 1
            return Change({"checkpoints_wanted": max(machine.checkpoints_wanted, wanted), "changed_at": now})


def _want(machine: Machine, desired: Desired, now: datetime) -> Change:
    return NO_CHANGE if machine.desired == desired else Change({"desired": desired, "changed_at": now})


# ── what a node does ──


def check_holder(machine: Machine, node: NodeId, generation: int) -> None:
    """That this node speaks for the machine as it is now."""
    if machine.node != node or machine.generation != generation:
        raise FencedError(
            "machine.fenced",
            f"Machine {machine.id!r} is at generation {machine.generation}; {generation} on {node!r} is over.",
        )


def begin_up(machine: Machine, node: NodeId, now: datetime) -> Change:
    """A node begins to boot or wake it, as a new generation. Whatever was begun before is fenced from here on."""
    if machine.state not in ("starting", "hibernated", "lost") or machine.desired == "deleted":
        raise ConflictError("machine.not_down", f"Machine {machine.id!r} is {machine.state}; it cannot be started.")
    if machine.state != "starting" and machine.desired != "running":
        # The step is late: meanwhile somebody has stopped it, or sent it back to sleep.
        raise ConflictError(NOT_WANTED, f"Machine {machine.id!r} shall be {machine.desired}, not running.")
    return Change({"node": node, "generation": machine.generation + 1, "is_booting": True, "changed_at": now})


def end_up(
    machine: Machine,
    node: NodeId,
    generation: int,
    now: datetime,
    *,
    base_key: str,
    is_cold: bool,
    gone_effects: Sequence[EffectId] = (),
) -> Change:
    """It is up. `is_cold`: its memory is not the one it had; `gone_effects`: what it no longer holds."""
    check_holder(machine, node, generation)
    if not machine.is_booting:
        return NO_CHANGE
    fields: dict[str, Any] = {
        "state": "running",
        "is_booting": False,
        "is_memory_doubtful": False,
        "reason": None,
        "changed_at": now,
        "spec": machine.spec.model_copy(update={"base_key": base_key}),
    }
    kind: EventKind = "booted" if machine.state == "starting" else "woken"
    # Born from a checkpoint without its memory: whoever expects what ran in it has to know.
    cold = {"is_cold": True} if is_cold and machine.state == "starting" and machine.origin is not None else {}
    events = [_event(kind, machine, now, node=node, **cold)]
    if is_cold and machine.state != "starting":
        events.append(_event("rebooted", machine, now))
    if gone_effects:
        facts = {"checkpoint": machine.checkpoint, "effects": list(gone_effects)}
        events.append(_event("rolled_back", machine, now, **facts))
    return Change(fields, tuple(events))


def fail_up(
    machine: Machine, node: NodeId, generation: int, now: datetime, *, was: State, reason: str, memory: bool
) -> Change:
    """It did not come up, and is what it was before. `memory`: its memory was the trouble, so the next try boots from
    its filesystem."""
    check_holder(machine, node, generation)
    # Also where the record says that it is up: the answer to that change may have been what failed. Nobody has used it.
    fields: dict[str, Any] = {"state": was, "node": None, "is_booting": False, "reason": reason, "changed_at": now}
    if memory:
        fields["is_memory_doubtful"] = True
    return Change(fields, (_event("failed", machine, now, reason=reason, is_memory=memory),))


def end_freeze(machine: Machine, node: NodeId, generation: int, now: datetime) -> Change:
    check_holder(machine, node, generation)
    if machine.state == "paused":
        return NO_CHANGE
    return Change({"state": "paused", "changed_at": now}, (_event("paused", machine, now),))


def end_thaw(machine: Machine, node: NodeId, generation: int, now: datetime) -> Change:
    check_holder(machine, node, generation)
    if machine.state != "paused":
        return NO_CHANGE
    return Change({"state": "running", "changed_at": now}, (_event("resumed", machine, now),))


def begin_checkpoint(machine: Machine, node: NodeId, generation: int) -> Change:
    """It is about to stand still: all that was wanted until now is fulfilled by what comes of it. The record has the
    number then."""
    check_holder(machine, node, generation)
    number = max(machine.checkpoints_wanted, machine.checkpoints_made + 1)
    return NO_CHANGE if machine.checkpoints_begun == number else Change({"checkpoints_begun": number})


def end_checkpoint(
    machine: Machine,
    node: NodeId,
    generation: int,
    checkpoint: CheckpointId,
    now: datetime,
    *,
    number: int,
    has_memory: bool,
) -> Change:
    """The checkpoint is stored and verified. `number`: what the record said was begun when it was."""
    check_holder(machine, node, generation)
    if machine.checkpoint == checkpoint:
        return NO_CHANGE
    fields = {
        "checkpoint": checkpoint,
        "checkpoints_made": max(machine.checkpoints_made, number),
        "is_memory_doubtful": False,
        "changed_at": now,
    }
    return Change(fields, (_event("checkpointed", machine, now, checkpoint=checkpoint, has_memory=has_memory),))


def end_hibernate(machine: Machine, node: NodeId, generation: int, checkpoint: CheckpointId, now: datetime) -> Change:
    """Its newest checkpoint is all of it: the sandbox may go. From here on the node no longer speaks for it."""
    if machine.state == "hibernated" and machine.checkpoint == checkpoint:
        return NO_CHANGE
    check_holder(machine, node, generation)
    if machine.checkpoint != checkpoint:
        raise ConflictError("machine.not_saved", f"Machine {machine.id!r} has no checkpoint {checkpoint!r}.")
    # Whose stop it was stays: one that a person has paused (its node ended, or the pause came too late) is at rest so
    # too, and only a resume wakes it.
    # Nothing ran since it was saved: whoever wants a checkpoint since then has it.
    made = max(machine.checkpoints_made, machine.checkpoints_wanted)
    fields = {
        "state": "hibernated",
        "node": None,
        "checkpoints_wanted": made,
        "checkpoints_made": made,
        "reason": None,
        "changed_at": now,
    }
    return Change(fields, (_event("hibernated", machine, now, checkpoint=checkpoint),))


def end_remove(machine: Machine, now: datetime) -> Change:
    if machine.state == "deleted":
        return NO_CHANGE
    return Change({"state": "deleted", "node": None, "changed_at": now}, (_event("deleted", machine, now),))


# ── what others find ──


def declare_lost(machine: Machine, node: NodeId, now: datetime, *, reason: str) -> Change:
    """The machine's sandbox is gone, or its node is. What it did since its last checkpoint is not in it any more."""
    if machine.node != node or machine.state == "deleted":
        return NO_CHANGE
    # One that was only being made has lost nothing: it goes back to where it was.
    was_up = machine.state in ("running", "paused")
    state: State = "lost" if was_up else machine.state
    fields = {
        "state": state,
        "node": None,
        "is_booting": False,
        "generation": machine.generation + 1,
        "reason": reason,
        "changed_at": now,
    }
    return Change(fields, (_event("lost", machine, now, reason=reason),) if was_up else ())


def keep_disk(machine: Machine, node: NodeId, generation: int, now: datetime, *, reason: str) -> Change:
    """Its sandbox ended, and its disk stays on its node until it could be saved: it is what it was, and says why it
    cannot be used."""
    check_holder(machine, node, generation)
    if machine.reason == reason:
        return NO_CHANGE
    return Change({"reason": reason, "changed_at": now}, (_event("failed", machine, now, reason=reason),))


def give_up(machine: Machine, step: Step, now: datetime, *, reason: str) -> Change:
    """A step failed for good: want what there is, so that nobody tries for ever. A person may ask again. Where the step
    is no longer the next one (it came through after all, or something else is wanted) there is nothing to give up."""
    if step != "declare_lost" and not is_due(machine, step):
        return NO_CHANGE
    fields: dict[str, Any] = {"reason": reason, "changed_at": now}
    match step:
        case "boot":
            fields |= {"state": "lost", "node": None, "is_booting": False}
        case "wake":
            fields |= {"desired": "hibernated" if machine.state == "hibernated" else machine.desired}
            fields |= {"node": None, "is_booting": False}
        case "hibernate":
            fields |= {"desired": "running"}
        case "checkpoint":
            fields |= {"checkpoints_wanted": machine.checkpoints_made}
        case "freeze":
            fields |= {"desired": "running"}
        case "thaw":
            fields |= {"desired": "paused"}
        case "remove" | "declare_lost":
            pass
    return Change(fields, (_event("failed", machine, now, step=step, reason=reason),))


def check_reached(machine: Machine, desired: Desired) -> None:
    """After the work is over: an error if what was asked for is not what came of it."""
    if machine.state == desired or (desired == "running" and machine.state == "paused"):
        return
    raise UnavailableError(
        "machine.not_settled",
        f"Machine {machine.id!r} is {machine.state}, not {desired}: {machine.reason or 'try again'}.",
    )


def _event(kind: EventKind, machine: Machine, now: datetime, **data: Any) -> MachineEvent:
    return MachineEvent(kind=kind, at=now, generation=machine.generation, data=data)
