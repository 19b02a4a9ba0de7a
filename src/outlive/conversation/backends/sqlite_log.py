"""The event log in SQLite. Finds and keeps rows; what an append may do is decided in `append.py`."""

import sqlite3
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from outlive.base import ConversationId, CrashPoint, NotFoundError, reach
from outlive.conversation.append import Known, LastAttempt, Plan, Summary, plan
from outlive.conversation.backends.group import Done, GroupCommitter, Results
from outlive.conversation.backends.lineage import Segment
from outlive.conversation.backends.rows import attempt_rows, event_rows, text_rows
from outlive.conversation.events import SEQ_MAX, Event
from outlive.conversation.log import READ_LIMIT, Append, Appended, OpenAttempt
from outlive.storage.migrate import read_migrations
from outlive.storage.sqlite import SqliteDatabase

MIGRATIONS = read_migrations("conversations", Path(__file__).parent / "migrations" / "sqlite")

EVENT_COLUMNS = "place & 4294967295, id, turn, step, attempt, type, v, at, actor, data, blob"

# One look per append: its conversation, and whether its batch is there already.
_SELECT_KNOWN = """
SELECT c.key, s.head, s.state, s.turn, s.machine, c.archived_at, s.updated_at,
    (SELECT e.place FROM events e WHERE e.place >> 32 = +c.key AND e.batch = ?2) -- the + lets the index be used
FROM conversations c JOIN summaries s ON s.key = c.key WHERE c.id = ?1
"""
_SELECT_LAST_ATTEMPT = """
SELECT attempt, status FROM attempts WHERE start >> 32 = ? AND step = ? ORDER BY attempt DESC LIMIT 1
"""
_SELECT_EVENTS = f"SELECT {EVENT_COLUMNS} FROM events WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?"  # noqa: S608
INSERT_EVENTS = """
INSERT INTO events (place, id, turn, step, attempt, type, v, at, actor, data, blob, batch, batch_size)
VALUES (? << 32 | ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
INSERT_TEXTS = "INSERT INTO unindexed (place, words) VALUES (? << 32 | ?, ?)"
_UPDATE_SUMMARIES = "UPDATE summaries SET head = ?, state = ?, turn = ?, machine = ?, updated_at = ? WHERE key = ?"
_INSERT_ATTEMPTS = """
INSERT INTO attempts (start, floor, step, attempt, turn, status, end_seq)
VALUES (?1 << 32 | ?2, coalesce(
    (SELECT min(start) FROM attempts WHERE start BETWEEN ?1 << 32 AND ?1 << 32 | 4294967295 AND end_seq IS NULL),
    ?1 << 32 | ?3
), ?4, ?5, ?6, ?7, ?8)
"""
_END_ATTEMPTS = "UPDATE attempts SET end_seq = ?, status = ? WHERE start >> 32 = ? AND step = ? AND attempt = ?"
_END_TURNS = """
UPDATE attempts SET end_seq = ?2, status = 'abandoned'
WHERE start BETWEEN ?1 << 32 AND ?1 << 32 | ?2 AND end_seq IS NULL
"""
_SELECT_OPEN = """
SELECT step, attempt, start & 4294967295, turn FROM attempts
WHERE start BETWEEN
    (SELECT floor FROM attempts WHERE start BETWEEN ?1 << 32 AND ?1 << 32 | ?2 ORDER BY start DESC LIMIT 1)
    AND ?1 << 32 | ?2
AND (end_seq IS NULL OR end_seq > ?2)
ORDER BY start
"""


_UNINDEXED_LIMIT = 256


def place_of(key: int, seq: int) -> int:
    return key << 32 | seq


def segments_of(connection: sqlite3.Connection, conversation: ConversationId) -> list[Segment]:
    """Where the events of a conversation are, in order; its own come last."""
    row = connection.execute(
        "SELECT c.key, c.first_seq, s.head FROM conversations c JOIN summaries s ON s.key = c.key WHERE c.id = ?",
        (conversation,),
    ).fetchone()
    if row is None:
        raise NotFoundError("conversation.not_found", f"There is no conversation {conversation!r}.")
    if row[1] == 1:
        return [Segment._make(row)]
    shared = connection.execute(
        "SELECT ancestor, first_seq, last_seq FROM lineage WHERE conversation = ? ORDER BY first_seq", row[:1]
    )
    return [*map(Segment._make, shared), Segment._make(row)]


def _read_known(connection: sqlite3.Connection, appends: list[Append]) -> Known:
    known = Known()
    for append in appends:
        row = connection.execute(_SELECT_KNOWN, (append.conversation, append.key)).fetchone()
        if row is None:
            continue
        key, place = row[0], row[7]
        if append.conversation not in known.summaries:
            known.summaries[append.conversation] = Summary(*row[:7])
        if place is not None:
            (size,) = connection.execute("SELECT batch_size FROM events WHERE place = ?", (place,)).fetchone()
            rows = connection.execute(_SELECT_EVENTS, (place, place + size - 1, size))
            known.batches[append.conversation, append.key] = [Event._make(row) for row in rows]
        if (writer := append.writer) is not None:
            last = connection.execute(_SELECT_LAST_ATTEMPT, (key, writer.step)).fetchone()
            if last is not None:
                known.attempts[append.conversation, writer.step] = LastAttempt(*last)
    return known


def _write_plan(connection: sqlite3.Connection, known: Known, into: Plan) -> None:
    connection.executemany(INSERT_EVENTS, event_rows(into))
    texts = text_rows(into)
    if texts:
        connection.executemany(INSERT_TEXTS, [(key, seq, " ".join(words)) for key, seq, words in texts])
        (waiting,) = connection.execute("SELECT max(number) FROM unindexed").fetchone()  # numbered from 1 each time
        if waiting >= _UNINDEXED_LIMIT:
            index_texts(connection)
    if into.changes:
        _write_attempts(connection, into)
    summaries = [known.summaries[conversation] for conversation in into.touched]
    connection.executemany(
        _UPDATE_SUMMARIES, [(s.head, s.state, s.turn, s.machine, s.updated_at, s.key) for s in summaries]
    )
    archived = [(new.at, key) for key, _, new, _ in into.events if new.type == "conversation.archived"]
    if archived:
        connection.executemany("UPDATE conversations SET archived_at = ? WHERE key = ?", archived)


def index_texts(connection: sqlite3.Connection) -> None:
    """Put the words that wait into the index."""
    connection.execute("INSERT INTO texts (rowid, words) SELECT place, words FROM unindexed ORDER BY number")
    connection.execute("DELETE FROM unindexed")


def _write_attempts(connection: sqlite3.Connection, into: Plan) -> None:
    rows = attempt_rows(into)
    connection.executemany(
        _INSERT_ATTEMPTS,
        [(r.key, r.start, r.floor, r.step, r.attempt, r.turn, r.status, r.end) for r in rows.started],
    )
    connection.executemany(_END_ATTEMPTS, [(e.end, e.status, e.key, e.step, e.attempt) for e in rows.ended])
    connection.executemany(_END_TURNS, list(rows.turns_ended.items()))


class SqliteEventLog:
    """`EventLog` in a SQLite file that several processes may share. Made by `open_sqlite_log`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._committer = GroupCommitter(self._start)

    def close(self) -> None:
        self._committer.close()

    async def append(self, append: Append) -> Appended:
        return await self._committer.append(append)

    async def read(self, conversation: ConversationId, after: int, limit: int) -> list[Event]:
        wanted = max(0, min(limit, READ_LIMIT))

        def select(connection: sqlite3.Connection) -> list[Event]:
            events: list[Event] = []
            for key, first, last in segments_of(connection, conversation):
                if last <= after or len(events) >= wanted:
                    continue
                begin = place_of(key, max(first, after + 1))
                rows = connection.execute(_SELECT_EVENTS, (begin, place_of(key, last), wanted - len(events)))
                events += map(Event._make, rows.fetchall())
            return events

        return await self._database.read(select)

    async def head(self, conversation: ConversationId) -> int:
        heads = await self.heads([conversation])
        if conversation not in heads:
            raise NotFoundError("conversation.not_found", f"There is no conversation {conversation!r}.")
        return heads[conversation]

    async def heads(self, conversations: Collection[ConversationId]) -> dict[ConversationId, int]:
        wanted = orjson.dumps(list(conversations)).decode()

        def select(connection: sqlite3.Connection) -> dict[Any, int]:
            rows = connection.execute(
                "SELECT c.id, s.head FROM json_each(?) w JOIN conversations c ON c.id = w.value "
                "JOIN summaries s ON s.key = c.key",
                (wanted,),
            )
            return dict(rows.fetchall())

        return await self._database.read(select)

    async def open_attempts(self, conversation: ConversationId, at: int) -> list[OpenAttempt]:
        def select(connection: sqlite3.Connection) -> list[OpenAttempt]:
            for key, first, _ in reversed(segments_of(connection, conversation)):
                if first <= at:  # the newest part that had begun; what was open before it is not open in it
                    bound = min(at, SEQ_MAX)
                    return [OpenAttempt._make(row) for row in connection.execute(_SELECT_OPEN, (key, bound))]
            return []

        return await self._database.read(select)

    def _start(self, appends: list[Append], done: Done) -> None:
        self._database.start_write(partial(_commit, appends), done)


def _commit(appends: list[Append], connection: sqlite3.Connection) -> Results:
    known = _read_known(connection, appends)
    into = Plan()
    results = [plan(append, known, into) for append in appends]
    if into.events:
        _write_plan(connection, known, into)
    reach(CrashPoint.LOG_BEFORE_COMMIT)
    return results


@asynccontextmanager
async def open_sqlite_log(database: SqliteDatabase) -> AsyncIterator[SqliteEventLog]:
    """The log in a migrated database. Who still waits for it when the context ends is told that it was closed."""
    log = SqliteEventLog(database)
    try:
        yield log
    finally:
        log.close()
