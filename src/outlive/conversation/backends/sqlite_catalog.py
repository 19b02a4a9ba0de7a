"""The catalog of conversations in SQLite: makes them, forks them, lists them, finds them."""

import sqlite3

from outlive.base import ConversationId, CrashPoint, NotFoundError, reach
from outlive.conversation.backends.lineage import check_created, check_same, shared_past
from outlive.conversation.backends.rows import AFTER_ALL, CONVERSATION_COLUMNS, about_of, created_event, to_conversation
from outlive.conversation.backends.search import WORD_LIMIT, query_words, words_of
from outlive.conversation.backends.sqlite_log import segments_of
from outlive.conversation.backends.sqlite_write import (
    EVENT_COLUMNS,
    INSERT_EVENTS,
    INSERT_TEXTS,
    NEWEST,
    index_texts,
    pack,
    place_of,
    to_event,
)
from outlive.conversation.events import Event, NewEvent
from outlive.conversation.log import Conversation, OpenTurn
from outlive.storage.sqlite import SqliteDatabase

_SELECT = f"""
SELECT {CONVERSATION_COLUMNS.format(head="newest.place & 4294967295", updated_at="newest.at")}
FROM conversations c JOIN summaries s ON s.key = c.key {NEWEST}
"""  # noqa: S608
_LIST = (
    _SELECT
    + """
WHERE {archived} AND c.id < :before {found} ORDER BY c.id DESC LIMIT :limit
"""
)
# A fork is found by what it shares, except by its ancestors' titles (the first event of each segment).
_FOUND = """
AND c.key IN (
    WITH hits AS MATERIALIZED (SELECT rowid AS place FROM texts WHERE texts MATCH :match)
    SELECT place >> 32 FROM hits
    UNION ALL
    SELECT l.conversation FROM hits JOIN lineage l
    ON l.ancestor = place >> 32 AND place & 4294967295 > l.first_seq AND place & 4294967295 <= l.last_seq
)
"""
_OPEN_TURNS = f"""
SELECT c.id, s.turn, newest.at, s.state, NOT EXISTS (
    SELECT 1 FROM attempts a WHERE a.start BETWEEN s.key << 32 AND s.key << 32 | 4294967295 AND a.end_seq IS NULL
) FROM summaries s JOIN conversations c ON c.key = s.key {NEWEST}
WHERE s.turn IS NOT NULL AND c.id > :after ORDER BY c.id LIMIT :limit
"""  # noqa: S608
_INSERT = """
INSERT INTO conversations (id, about, parent_id, parent_at, first_seq, created_by, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""


def _get(connection: sqlite3.Connection, conversation: ConversationId) -> Conversation:
    row = connection.execute(_SELECT + "WHERE c.id = ?", (conversation,)).fetchone()
    if row is None:
        raise NotFoundError("conversation.not_found", f"There is no conversation {conversation!r}.")
    return to_conversation(row)


def _find_created(connection: sqlite3.Connection, conversation: ConversationId) -> Event | None:
    row = connection.execute(
        f"SELECT {EVENT_COLUMNS} FROM events "  # noqa: S608
        "WHERE place = (SELECT key << 32 | first_seq FROM conversations WHERE id = ?)",
        (conversation,),
    ).fetchone()
    return None if row is None else to_event(row)


def _insert(connection: sqlite3.Connection, conversation: ConversationId, created: NewEvent, actor: str) -> Event:
    data = check_created(created)
    shared = []
    if data.parent is not None:
        parent = ConversationId(data.parent.conversation)
        shared = shared_past(parent, segments_of(connection, parent), data.parent.at)
    seq = shared[-1].last + 1 if shared else 1
    origin = (data.parent.conversation, data.parent.at) if data.parent else (None, None)
    row = (conversation, about_of(data), *origin, seq, actor, created.at)
    key = connection.execute(_INSERT, row).lastrowid
    assert key is not None
    connection.execute("INSERT INTO summaries (key, state) VALUES (?, 'idle')", (key,))
    connection.executemany(
        "INSERT INTO lineage (conversation, ancestor, first_seq, last_seq) VALUES (?, ?, ?, ?)",
        [(key, *segment) for segment in shared],
    )
    event = created_event(seq, created, actor)
    stored = event._replace(data_json=pack(event.data_json))  # type: ignore[arg-type]  # only a row
    connection.execute(INSERT_EVENTS, (key, *stored, None, None))
    if words := words_of(data.title or ""):
        connection.execute(INSERT_TEXTS, (place_of(key, seq), " ".join(words)))
    return event


OpenTurns = list[OpenTurn]  # named here, since `SqliteCatalog.list` hides the builtin below it


class SqliteCatalog:
    """`Catalog` in the database of a `SqliteEventLog`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def create(self, conversation: ConversationId, created: NewEvent, actor: str) -> tuple[Conversation, Event]:
        check_created(created)

        def transaction(connection: sqlite3.Connection) -> tuple[Conversation, Event]:
            event = _find_created(connection, conversation)
            if event is None:
                event = _insert(connection, conversation, created, actor)
            else:
                check_same(conversation, created, event.data_json, event.blob)
            reach(CrashPoint.LOG_BEFORE_COMMIT)
            return _get(connection, conversation), event

        made = await self._database.write(transaction)
        reach(CrashPoint.LOG_AFTER_COMMIT)
        return made

    async def get(self, conversation: ConversationId) -> Conversation:
        return await self._database.read(lambda connection: _get(connection, conversation))

    async def list(
        self, *, limit: int, before: ConversationId | None = None, archived: bool = False, query: str | None = None
    ) -> list[Conversation]:
        is_search = query is not None and query.strip() != ""
        words = query_words(query or "")
        if is_search and not words:
            return []  # nothing in it that a text could have
        if is_search:
            await self._index_waiting()
        # Each word in quotes is a plain word to FTS5; the last may go on.
        match = " AND ".join(f'"{word}"' + ("*" if len(word) == WORD_LIMIT else "") for word in words).rstrip("*") + "*"
        sql = _LIST.format(
            archived="c.archived_at IS NOT NULL" if archived else "c.archived_at IS NULL",
            found=_FOUND if is_search else "",
        )
        values = {"before": before or AFTER_ALL, "limit": max(0, limit), "match": match}

        def select(connection: sqlite3.Connection) -> list[Conversation]:
            return [to_conversation(row) for row in connection.execute(sql, values)]

        return await self._database.read(select)

    async def open_turns(self, *, limit: int, after: ConversationId | None = None) -> OpenTurns:
        values = {"after": after or "", "limit": max(0, limit)}

        def select(connection: sqlite3.Connection) -> list[OpenTurn]:
            rows = connection.execute(_OPEN_TURNS, values)
            return [OpenTurn._make((*row[:-1], bool(row[-1]))) for row in rows]

        return await self._database.read(select)

    async def _index_waiting(self) -> None:
        """So that a search finds all that was there when it was asked for."""
        if await self._database.read(_has_unindexed):
            await self._database.write(index_texts)


def _has_unindexed(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM unindexed LIMIT 1").fetchone() is not None
