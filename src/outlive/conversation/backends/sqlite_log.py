"""The event log in SQLite. Finds and keeps rows; what an append may do is decided in `append.py`."""

import sqlite3
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from outlive.base import ConversationId, NotFoundError
from outlive.conversation.backends.group import Done, GroupCommitter, Results
from outlive.conversation.backends.lineage import Segment
from outlive.conversation.backends.sqlite_write import (
    EVENT_COLUMNS,
    INSERT_EVENTS,
    NEWEST,
    SqliteWriter,
    place_of,
    to_event,
)
from outlive.conversation.events import SEQ_MAX, Event
from outlive.conversation.log import READ_CHARACTERS, READ_LIMIT, Append, Appended, OpenAttempt
from outlive.storage.migrate import read_migrations
from outlive.storage.sqlite import SqliteDatabase

__all__ = ["EVENT_COLUMNS", "INSERT_EVENTS", "MIGRATIONS", "SqliteEventLog", "open_sqlite_log", "segments_of"]

MIGRATIONS = read_migrations("conversations", Path(__file__).parent / "migrations" / "sqlite")

_SELECT_EVENTS = f"SELECT {EVENT_COLUMNS} FROM events WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?"  # noqa: S608
_SELECT_OWN_SEGMENT = f"""
SELECT c.key, c.first_seq, newest.place & 4294967295 FROM conversations c {NEWEST} WHERE c.id = ?
"""  # noqa: S608
_SELECT_HEADS = f"""
SELECT c.id, newest.place & 4294967295 FROM json_each(?) w JOIN conversations c ON c.id = w.value {NEWEST}
"""  # noqa: S608
_SELECT_OPEN = """
SELECT step, attempt, start & 4294967295, turn FROM attempts
WHERE start BETWEEN
    (SELECT floor FROM attempts WHERE start BETWEEN ?1 << 32 AND ?1 << 32 | ?2 ORDER BY start DESC LIMIT 1)
    AND ?1 << 32 | ?2
AND (end_seq IS NULL OR end_seq > ?2)
ORDER BY start
"""


_ROWS_AT_ONCE = 128


def segments_of(connection: sqlite3.Connection, conversation: ConversationId) -> list[Segment]:
    """Where the events of a conversation are, in order; its own come last."""
    row = connection.execute(_SELECT_OWN_SEGMENT, (conversation,)).fetchone()
    if row is None:
        raise NotFoundError("conversation.not_found", f"There is no conversation {conversation!r}.")
    if row[1] == 1:
        return [Segment._make(row)]
    shared = connection.execute(
        "SELECT ancestor, first_seq, last_seq FROM lineage WHERE conversation = ? ORDER BY first_seq", row[:1]
    )
    return [*map(Segment._make, shared), Segment._make(row)]


def _take(rows: sqlite3.Cursor, into: list[Event]) -> bool:
    """Take rows until there are none, or enough text was read: then False."""
    characters = 0
    while some := [to_event(row) for row in rows.fetchmany(_ROWS_AT_ONCE)]:
        into += some
        characters += sum([len(event.data_json) for event in some])
        if characters > READ_CHARACTERS:
            rows.close()
            return False
    return True


class SqliteEventLog:
    """`EventLog` in a SQLite file that several processes may share. Made by `open_sqlite_log`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._writer = SqliteWriter()
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
                if not _take(rows, events):
                    break
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
            rows = connection.execute(_SELECT_HEADS, (wanted,))
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
        self._database.start_write(partial(self._writer.commit, appends), partial(self._finish, done))

    def _finish(self, done: Done, results: Results | None, error: BaseException | None) -> None:
        if error is not None:
            self._writer.forget()  # there is no transaction until this one is done with: nobody uses it just now
        done(results, error)


@asynccontextmanager
async def open_sqlite_log(database: SqliteDatabase) -> AsyncIterator[SqliteEventLog]:
    """The log in a migrated database. Who still waits for it when the context ends is told that it was closed."""
    log = SqliteEventLog(database)
    try:
        yield log
    finally:
        log.close()
