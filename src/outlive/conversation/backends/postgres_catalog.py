"""The catalog of conversations in PostgreSQL: makes them, forks them, lists them, finds them."""

from outlive.base import ConversationId, CrashPoint, NotFoundError, reach
from outlive.conversation.backends.lineage import Segment, check_created, check_same, shared_past
from outlive.conversation.backends.postgres_log import EVENT_COLUMNS, segments_of
from outlive.conversation.backends.rows import AFTER_ALL, CONVERSATION_COLUMNS, about_of, created_event, to_conversation
from outlive.conversation.backends.search import query_words, words_of
from outlive.conversation.events import ConversationCreated, Event, NewEvent, text_of
from outlive.conversation.log import Conversation, OpenTurn
from outlive.storage.postgres import Connection, PostgresDatabase

_SELECT = f"""
SELECT {CONVERSATION_COLUMNS.format(head="s.head", updated_at="s.updated_at")}
FROM conversations c JOIN summaries s ON s.key = c.key
"""  # noqa: S608
_SELECT_CREATED = f"""
SELECT {EVENT_COLUMNS} FROM conversations c JOIN events e ON e.conversation = c.key AND e.seq = c.first_seq
WHERE c.id = $1
"""  # noqa: S608
# A fork is found by what it shares, except by its ancestors' titles (the first event of each segment).
_FOUND = """
AND c.key IN (
    WITH hits AS MATERIALIZED (SELECT conversation, seq FROM texts WHERE words @@ $3::text::tsquery)
    SELECT conversation FROM hits
    UNION ALL
    SELECT l.conversation FROM hits JOIN lineage l
    ON l.ancestor = hits.conversation AND hits.seq > l.first_seq AND hits.seq <= l.last_seq
)
"""
_OPEN_TURNS = """
SELECT c.id, s.turn, s.updated_at, s.state, NOT EXISTS (
    SELECT FROM attempts a WHERE a.conversation = s.key AND a.end_seq IS NULL
) FROM summaries s JOIN conversations c ON c.key = s.key
WHERE s.turn IS NOT NULL AND c.id > $1 ORDER BY c.id LIMIT $2
"""
_INSERT = """
INSERT INTO conversations (id, about, parent_id, parent_at, first_seq, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING RETURNING key
"""
_INSERT_SUMMARY = "INSERT INTO summaries (key, head, state, updated_at) VALUES ($1, $2, 'idle', $3)"
_INSERT_LINEAGE = "INSERT INTO lineage (conversation, ancestor, first_seq, last_seq) VALUES ($1, $2, $3, $4)"
_INSERT_EVENT = """
INSERT INTO events (conversation, seq, id, turn, step, attempt, type, v, at, actor, data, blob)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
"""
_INSERT_TEXT = """
INSERT INTO texts (conversation, seq, words) VALUES ($1, $2, array_to_tsvector($3::text[]))
"""


async def _get(connection: Connection, conversation: ConversationId) -> Conversation:
    row = await connection.fetchrow(_SELECT + "WHERE c.id = $1", conversation)
    if row is None:
        raise NotFoundError("conversation.not_found", f"There is no conversation {conversation!r}.")
    return to_conversation(tuple(row))


async def _shared(connection: Connection, data: ConversationCreated) -> list[Segment]:
    if data.parent is None:
        return []
    parent = ConversationId(data.parent.conversation)
    return shared_past(parent, await segments_of(connection, parent), data.parent.at)


async def _insert(connection: Connection, conversation: ConversationId, created: NewEvent, actor: str) -> Event | None:
    """The new conversation's first event; None if somebody else made the conversation at the same moment."""
    data = check_created(created)
    shared = await _shared(connection, data)
    seq = shared[-1].last + 1 if shared else 1
    origin = (data.parent.conversation, data.parent.at) if data.parent else (None, None)
    key = await connection.fetchval(_INSERT, conversation, about_of(data), *origin, seq, actor, created.at)
    if key is None:
        return None
    event = created_event(seq, created, actor)
    await connection.execute(_INSERT_SUMMARY, key, seq, created.at)
    await connection.execute(_INSERT_EVENT, key, *event)
    if shared:
        await connection.executemany(_INSERT_LINEAGE, [(key, *segment) for segment in shared])
    if words := words_of(text_of(data) or ""):
        await connection.execute(_INSERT_TEXT, key, seq, words)
    return event


OpenTurns = list[OpenTurn]  # named here, since `PostgresCatalog.list` hides the builtin below it


class PostgresCatalog:
    """`Catalog` in the database of a `PostgresEventLog`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def create(self, conversation: ConversationId, created: NewEvent, actor: str) -> tuple[Conversation, Event]:
        check_created(created)

        async def transaction(connection: Connection) -> tuple[Conversation, Event]:
            row = await connection.fetchrow(_SELECT_CREATED, conversation)
            event = await _insert(connection, conversation, created, actor) if row is None else Event._make(row)
            if event is None:
                row = await connection.fetchrow(_SELECT_CREATED, conversation)
                assert row is not None
                event = Event._make(row)
            check_same(conversation, created, event.data_json, event.blob)
            made = await _get(connection, conversation)
            reach(CrashPoint.LOG_BEFORE_COMMIT)
            return made, event

        made = await self._database.write(transaction)
        reach(CrashPoint.LOG_AFTER_COMMIT)
        return made

    async def get(self, conversation: ConversationId) -> Conversation:
        return await self._database.run(lambda connection: _get(connection, conversation))

    async def list(
        self, *, limit: int, before: ConversationId | None = None, archived: bool = False, query: str | None = None
    ) -> list[Conversation]:
        is_search = query is not None and query.strip() != ""
        words = query_words(query or "")
        if is_search and not words:
            return []  # nothing in it that a text could have
        # Each word in quotes is a plain word to PostgreSQL; the last may go on.
        match = [" & ".join(f"'{word}'" for word in words) + ":*"] if is_search else []
        sql = (
            f"{_SELECT} WHERE c.archived_at IS {'NOT NULL' if archived else 'NULL'} "
            f"AND c.id < $1 {_FOUND if is_search else ''} ORDER BY c.id DESC LIMIT $2"
        )

        async def select(connection: Connection) -> list[Conversation]:
            rows = await connection.fetch(sql, before or AFTER_ALL, max(0, limit), *match)
            return [to_conversation(tuple(row)) for row in rows]

        return await self._database.run(select)

    async def open_turns(self, *, limit: int, after: ConversationId | None = None) -> OpenTurns:
        async def select(connection: Connection) -> OpenTurns:
            rows = await connection.fetch(_OPEN_TURNS, after or "", max(0, limit))
            return [OpenTurn._make(row) for row in rows]

        return await self._database.run(select)
