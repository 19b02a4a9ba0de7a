"""The rows that both sides write and read: the same text, the same columns, the same table."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from outlive.base import ConversationId, SystemClock, new_message_id, new_turn_id, to_text
from outlive.conversation.backends.sqlite_log import EVENT_COLUMNS, INSERT_EVENTS
from outlive.conversation.events import MessageSent, NewEvent
from outlive.conversation.log import Append

ACTOR = "prin_00000000000070008000000000000000"
TEXT = "Make the failing test pass, then say what you changed and why; keep the change small and leave the rest alone. "

SELECT_EVENTS = f"SELECT {EVENT_COLUMNS} FROM events WHERE place BETWEEN ? AND ? ORDER BY place"

MARK = "round {round} serial {serial}."  # what a follower finds again in what it was sent
LAST = "that was the last one"


def messages(conversation: ConversationId, count: int) -> list[Append]:
    """Appends of one message each, checked and encoded beforehand: what is timed is the writing."""
    return [message(conversation, f"{TEXT}{number}") for number in range(count)]


def message(conversation: ConversationId, text: str) -> Append:
    id = new_message_id()
    new = NewEvent(MessageSent(message=id, text=text), to_text(SystemClock().now()))
    return Append(conversation, (new,), key=f"send/{id}", actor=ACTOR, turn=new_turn_id())


def bare_row(append: Append, key: int, seq: int) -> tuple[Any, ...]:
    """The row of `events` that Outlive writes for this append."""
    [new] = append.events
    return (
        key,
        seq,
        new.id,
        append.turn,
        None,
        None,
        new.type,
        1,
        new.at,
        append.actor,
        new.data_json,
        None,
        append.key,
        1,
    )


def connect_bare(path: Path) -> sqlite3.Connection:
    """A connection as Outlive's writer has it: WAL, synchronous=FULL, the same cache."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=5.0)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA cache_size=-16384")
    connection.execute("PRAGMA journal_size_limit=67108864")
    return connection


def write_bare(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    """The bare loop: one row, one transaction, one sync."""
    for row in rows:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(INSERT_EVENTS, row)
        connection.execute("COMMIT")


def envelope_json(row: tuple[Any, ...]) -> str:
    """What the barest server sends of a row: the envelope, with the payload passed on as it was stored."""
    seq, id, turn, step, attempt, type, v, at, actor, data, _ = row
    head = json.dumps({"id": id, "seq": seq, "turn": turn, "step": step, "attempt": attempt, "type": type, "v": v})
    return f'{head[:-1]}, "at": "{at}", "actor": "{actor}", "data": {data}}}'
