"""What a plan amounts to in rows, the same for every SQL backend. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outlive.base import ConversationId
from outlive.conversation.append import AttemptEnded, AttemptStarted, AttemptStatus, Plan, TurnEnded
from outlive.conversation.backends.search import words_of
from outlive.conversation.events import (
    ConversationArchived,
    ConversationCreated,
    Event,
    ModelChanged,
    NewEvent,
    text_of,
)
from outlive.conversation.log import Conversation

# The columns of a conversation in the order that `to_conversation` takes them (c: conversations, s: summaries).
CONVERSATION_COLUMNS = """c.id, c.about, c.model, c.parent_id, c.parent_at, s.state, s.turn, s.machine, {head},
c.created_by, c.created_at, {updated_at}, c.archived_at"""


def about_of(created: ConversationCreated) -> str:
    """What is shown of a conversation and never asked for: as JSON in ASCII, which holds NUL and the like."""
    return json.dumps([created.agent, created.title, created.environment, created.model, created.metadata])


def to_conversation(row: Sequence[Any]) -> Conversation:
    id, about, model, parent, parent_at, *rest = row
    agent, title, environment, first_model, metadata = json.loads(about)
    origin = None if parent is None else (ConversationId(parent), parent_at)
    return Conversation._make((id, agent, title, environment, model or first_model, metadata, origin, *rest))


def created_event(seq: int, created: NewEvent, actor: str) -> Event:
    """The event a conversation begins with, in its place."""
    return Event(
        seq=seq,
        id=created.id,
        turn=None,
        step=None,
        attempt=None,
        type=created.type,
        v=created.data.v,
        at=created.at,
        actor=actor,
        data_json=created.data_json,
        blob=created.blob,
    )


EventRow = list[Any]
"""key, seq, id, turn, step, attempt, type, v, at, actor, data, blob, batch, batch_size"""


def event_rows(plan: Plan) -> list[EventRow]:
    """One row per event; the first of a batch carries its key and size, so that one look-up finds a repeat."""
    rows: list[EventRow] = []
    current: tuple[int, str] | None = None
    first: EventRow = []
    for key, batch, _, event in plan.events:
        if (key, batch) != current:
            current = (key, batch)
            first = [key, *event, batch, 0]
            rows.append(first)
        else:
            rows.append([key, *event, None, None])
        first[-1] += 1
    return rows


def text_rows(plan: Plan) -> list[tuple[int, int, list[str]]]:
    """Key, seq and words of each event that a search may find."""
    rows = []
    for key, _, new, event in plan.events:
        text = text_of(new.data)
        if text and (words := words_of(text)):
            rows.append((key, event.seq, words))
    return rows


def shown_rows(plan: Plan) -> list[tuple[int, str | None, str | None]]:
    """Key, when it was archived, and its model, of each conversation of which one of the two changes (else None)."""
    archived: dict[int, str] = {}
    models: dict[int, str] = {}
    for key, _, new, _ in plan.events:
        match new.data:
            case ConversationArchived():
                archived[key] = new.at
            case ModelChanged(scope="conversation", model=model):
                models[key] = model
            case _:
                pass
    return [(key, archived.get(key), models.get(key)) for key in sorted({*archived, *models})]


@dataclass(slots=True)
class StartedRow:
    key: int
    step: str
    attempt: int
    start: int
    floor: int  # the lowest start of what this transaction started in the conversation before
    turn: str | None
    status: AttemptStatus = "open"
    end: int | None = None


@dataclass(slots=True)
class AttemptRows:
    """To be written in this order. Rows in `started` are in their final state already; `ended` are attempts of earlier
    transactions; `turns_ended` (key -> end) ends what is then still open and started before `end`."""

    started: list[StartedRow] = field(default_factory=list)
    ended: list[AttemptEnded] = field(default_factory=list)
    turns_ended: dict[int, int] = field(default_factory=dict)


def attempt_rows(plan: Plan) -> AttemptRows:
    """The changes of a plan, folded: each row is written once, whatever happened to it within the transaction."""
    rows = AttemptRows()
    fresh: dict[tuple[int, str, int], StartedRow] = {}
    floors: dict[int, int] = {}
    for change in plan.changes:
        match change:
            case AttemptStarted(key, step, attempt, start, turn):
                row = StartedRow(key, step, attempt, start, floors.setdefault(key, start), turn)
                fresh[key, step, attempt] = row
                rows.started.append(row)
            case AttemptEnded(key, step, attempt, end, status):
                if (known := fresh.get((key, step, attempt))) is None:
                    rows.ended.append(change)
                else:
                    known.status, known.end = status, end
            case TurnEnded(key, end):
                # What earlier transactions left open ends with the first turn that ends in this one.
                rows.turns_ended.setdefault(key, end)
                for row in rows.started:
                    if row.key == key and row.end is None:
                        row.status, row.end = "abandoned", end
    return rows


AFTER_ALL = "conv_g"  # greater than any id: ids go on in hexadecimal
"""Where a list begins that does not say so. A bound that is always there lets the index be used."""
