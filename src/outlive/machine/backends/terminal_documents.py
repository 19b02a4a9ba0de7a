"""Terminals as they are stored, and what becomes of them: the same in every database. Pure.

The SQL is what both databases understand, with `?` for values; `numbered` writes it for PostgreSQL.
"""

from datetime import datetime
from typing import Any

from outlive.base import BrokenError, ConflictError, NotFoundError, TerminalId
from outlive.machine.backends.documents import to_doc
from outlive.machine.terminal.status import Segment, Terminal

INSERT_TERMINAL = """
INSERT INTO terminals (id, machine, name, state, doc) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id
"""
SELECT_TERMINAL = "SELECT doc FROM terminals WHERE id = ?"
SELECT_NAMED = "SELECT doc FROM terminals WHERE machine = ? AND name = ?"
SELECT_TERMINALS = "SELECT doc FROM terminals WHERE machine = ? ORDER BY id"
SELECT_OPEN = "SELECT doc FROM terminals WHERE machine = ? AND state = 'open' ORDER BY id"
UPDATE_TERMINAL = "UPDATE terminals SET state = ?, doc = ? WHERE id = ?"

INSERT_SEGMENT = "INSERT INTO terminal_segments (terminal, n, start_offset, end_offset, doc) VALUES (?, ?, ?, ?, ?)"
SELECT_SEGMENT = "SELECT doc FROM terminal_segments WHERE terminal = ? AND n = ?"
SELECT_SEGMENTS = """
SELECT doc FROM terminal_segments WHERE terminal = ? AND n > ? AND (end_offset > ? OR start_offset >= ?)
ORDER BY n LIMIT ?
"""

MACHINE_DELETED = "Its machine was deleted."

_FIXED = ("id", "machine", "name", "origin", "owner", "command", "segments", "created_at")


def terminal_row(terminal: Terminal) -> tuple[Any, ...]:
    return terminal.id, terminal.machine, terminal.name, terminal.state, to_doc(terminal)


def terminal_update(terminal: Terminal) -> tuple[Any, ...]:
    return terminal.state, to_doc(terminal), terminal.id


def segment_row(segment: Segment) -> tuple[Any, ...]:
    return segment.terminal, segment.n, segment.start, segment.end, to_doc(segment)


def apply_decision(current: Terminal, decided: Terminal) -> Terminal | None:
    """The record after it was decided upon; None if nothing changes. A new moment alone is no change."""
    if any(getattr(current, field) != getattr(decided, field) for field in _FIXED):
        raise BrokenError("terminal.redefined", f"What terminal {current.id!r} is does not change; open another.")
    is_same = decided.model_copy(update={"changed_at": current.changed_at, "revision": current.revision}) == current
    return None if is_same else _next(current, decided.model_dump())


def as_closed(terminal: Terminal, at: datetime, reason: str) -> Terminal:
    ended = {"state": "closed", "reason": reason, "lease": None, "ended_at": at, "changed_at": at}
    return _next(terminal, {**terminal.model_dump(), **ended})


def with_segment(terminal: Terminal, segment: Segment, *, recorded_to: int, reserved_to: int | None) -> Terminal:
    """The record of a terminal whose recording goes on with this segment."""
    if segment.n != terminal.segments + 1:
        raise ConflictError(
            "terminal.segment_hole",
            f"Terminal {terminal.id!r} has {terminal.segments} segments; {segment.n} cannot be next.",
            segments=terminal.segments,
        )
    fields = {"segments": segment.n, "recorded_to": max(terminal.recorded_to, recorded_to)}
    fields["reserved_to"] = terminal.reserved_to if reserved_to is None else reserved_to
    return _next(terminal, {**terminal.model_dump(), **fields, "changed_at": segment.ended_at})


def unknown_terminal(terminal: TerminalId) -> NotFoundError:
    return NotFoundError("terminal.unknown", f"There is no terminal {terminal!r}.")


def name_taken(terminal: Terminal) -> ConflictError:
    return ConflictError(
        "terminal.name_taken", f"Machine {terminal.machine!r} has another terminal that is called {terminal.name!r}."
    )


def _next(current: Terminal, fields: dict[str, Any]) -> Terminal:
    return Terminal.model_validate({**fields, "revision": current.revision + 1})
