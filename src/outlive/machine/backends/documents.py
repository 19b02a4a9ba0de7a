"""Records as they are stored, and what becomes of them: the decisions that are the same in every database. Pure.

A record is stored whole, as JSON, so that a field with a default can be added without a migration. What is asked for
stands in columns beside it.
"""

from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from outlive.base import (
    BrokenError,
    CheckpointId,
    ConflictError,
    EffectId,
    FencedError,
    InvalidError,
    MachineId,
    NodeId,
    NotFoundError,
    OperationId,
    to_text,
)
from outlive.machine.lifecycle import Change, check_holder
from outlive.machine.records import MachineFilter
from outlive.machine.status import FORESTALLED, Checkpoint, Effect, Environment, Machine, MachineEvent

M = TypeVar("M", bound=BaseModel)

MACHINE_COLUMNS = (
    *("id", "owner", "conversation", "environment", "node", "state", "desired"),
    *("is_warm", "claimed_by", "generation", "revision", "origin", "checkpoint", "doc"),
)
EFFECT_COLUMNS = "machine, effect, n, digest, generation, state, started_at, doc"
_INTERRUPTED = 130  # the exit code of what Ctrl-C ends


# ── to text and back ──


def to_doc(record: BaseModel) -> str:
    try:
        return record.model_dump_json()
    except ValueError as error:  # half a surrogate pair: that is no text
        raise InvalidError("record.value", f"This cannot be stored as text ({type(error).__name__}).") from error


def from_doc(kind: type[M], doc: str) -> M:
    try:
        return kind.model_validate_json(doc)
    except ValidationError as error:
        raise BrokenError(
            "record.damaged", f"A stored {kind.__name__.lower()} cannot be read; was it written by a newer version?"
        ) from error


def machine_row(machine: Machine) -> tuple[Any, ...]:
    """The values of `MACHINE_COLUMNS`."""
    return (*(getattr(machine, column) for column in MACHINE_COLUMNS[:-1]), to_doc(machine))


def to_effect(row: tuple[Any, ...]) -> Effect:
    """From the values of `EFFECT_COLUMNS`."""
    machine, effect, n, digest, generation, state, started_at, doc = row
    if doc is not None:
        return from_doc(Effect, doc)
    return Effect(
        machine=machine,
        id=effect,
        n=n,
        digest=digest,
        generation=generation,
        state=state,
        started_at=datetime.fromisoformat(started_at),
    )


def to_row(effect: Effect) -> tuple[Any, ...]:
    """The values of `EFFECT_COLUMNS`, of one that is over."""
    numbers = (effect.machine, effect.id, effect.n, effect.digest, effect.generation)
    return (*numbers, effect.state, to_text(effect.started_at), to_doc(effect))


def numbered(sql: str) -> str:
    """The same statement as PostgreSQL writes it: $1, $2 ... for the question marks."""
    first, *others = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(others, 1))


def machines_where(chosen: MachineFilter, before: MachineId | None) -> tuple[str, list[Any]]:
    """The condition, and the values of its question marks."""
    wanted: dict[str, Any] = {
        "owner": chosen.owner,
        "conversation": chosen.conversation,
        "environment": chosen.environment,
    }
    wanted |= {"node": chosen.node, "is_warm": chosen.is_warm}
    parts = [f"{column} = ?" for column, value in wanted.items() if value is not None]
    values: list[Any] = [value for value in wanted.values() if value is not None]
    if chosen.states is None:
        parts.append("state <> 'deleted'")
    else:
        parts.append(f"state IN ({', '.join('?' * len(chosen.states)) or 'NULL'})")
        values += chosen.states
    if before is not None:
        parts.append("id < ?")
        values.append(before)
    return " AND ".join(parts), values


# ── what becomes of a machine ──


def born(machine: Machine) -> MachineEvent:
    """The first line of its history."""
    data = {"environment": machine.environment} | ({"origin": machine.origin} if machine.origin else {})
    return MachineEvent(kind="created", at=machine.created_at, generation=machine.generation, data=data)


def apply_change(machine: Machine, change: Change) -> Machine | None:
    """The record after the change; None if it changes nothing. A new moment alone is no change."""
    current = dict(machine)
    news = {field for field, value in change.fields.items() if current[field] != value}
    if not change.events and news <= {"changed_at"}:
        return None
    return Machine.model_validate(current | dict(change.fields) | {"revision": machine.revision + 1})


def claimed(change: Change, operation: OperationId) -> Change:
    """The change of one that this operation takes out of its pool."""
    return Change({**change.fields, "is_warm": False, "claimed_by": operation}, change.events)


def new_references(before: Machine | Environment | None, after: Machine | Environment) -> list[CheckpointId]:
    """The checkpoints that a record refers to from now on; they have to be ready."""
    found: list[CheckpointId] = []
    for field in ("origin", "checkpoint"):
        reference = getattr(after, field, None)
        if reference is not None and reference != getattr(before, field, None):
            found.append(reference)
    return found


def check_may_begin(machine: Machine, node: NodeId, generation: int) -> None:
    check_holder(machine, node, generation)
    if machine.state != "running":
        raise FencedError("machine.fenced", f"Machine {machine.id!r} is {machine.state}; it runs no command.")


def forestalled(machine: MachineId, effect: EffectId, n: int, generation: int, at: datetime) -> Effect:
    """The line of one that never begins."""
    return Effect(
        machine=machine,
        id=effect,
        n=n,
        digest=FORESTALLED,
        generation=generation,
        state="finished",
        exit_code=_INTERRUPTED,
        started_at=at,
        ended_at=at,
    )


def never_begins(effect: EffectId) -> ConflictError:
    return ConflictError("effect.forestalled", f"Effect {effect!r} was stopped before it began: it never does.")


def check_same_request(effect: Effect, digest: str) -> None:
    if effect.is_forestalled:
        raise never_begins(effect.id)
    if effect.digest != digest:
        raise ConflictError(
            "effect.other_request", f"Effect {effect.id!r} of {effect.machine!r} stands for another request."
        )


def with_result(begun: Effect, given: Effect) -> Effect:
    """The journal's line with its result. What was written at the beginning stays as it was."""
    if not given.is_over:
        raise InvalidError("effect.not_over", f"Effect {given.id!r} of {given.machine!r} has no result yet.")
    kept = ("machine", "id", "n", "digest", "generation", "started_at")
    return given.model_copy(update={field: getattr(begun, field) for field in kept})


def as_lost(begun: Effect, at: datetime) -> Effect:
    return begun.model_copy(update={"state": "lost", "ended_at": at})


def made_ready(found: Checkpoint, given: Checkpoint) -> Checkpoint:
    """The checkpoint as it was finished. Whose it is was said when it was begun."""
    kept = {"machine": found.machine, "generation": found.generation, "parent": found.parent}
    return given.model_copy(update={**kept, "state": "ready"})


def check_environment_change(before: Environment, after: Environment) -> None:
    if (before.digest, before.definition) != (after.digest, after.definition):
        raise BrokenError("environment.redefined", f"Environment {before.digest!r} is its definition; make another.")


# ── what is not there ──


def unknown_machine(machine: MachineId) -> NotFoundError:
    return NotFoundError("machine.unknown", f"There is no machine {machine!r}.")


def unknown_effect(machine: MachineId, effect: EffectId) -> NotFoundError:
    return NotFoundError("effect.unknown", f"Machine {machine!r} was never asked for effect {effect!r}.")


def unknown_node(node: NodeId) -> NotFoundError:
    return NotFoundError("node.unknown", f"There is no node {node!r}.")


def unknown_checkpoint(checkpoint: CheckpointId) -> NotFoundError:
    return NotFoundError("checkpoint.unknown", f"There is no checkpoint {checkpoint!r}, or it was deleted.")


def unknown_environment(name_or_digest: str) -> NotFoundError:
    return NotFoundError("environment.unknown", f"There is no environment {name_or_digest!r}.")
