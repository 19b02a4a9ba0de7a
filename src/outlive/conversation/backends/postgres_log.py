"""The event log in PostgreSQL. Finds and keeps rows; what an append may do is decided in `append.py`.

A group of appends takes one statement, which writes it if the heads are still what they were and none of its batches is
in the log already; and another one before it that reads what it depends on, unless that is remembered (`memory.py`).
The head is the version of a conversation: nothing an append depends on changes without it. A refusal writes nothing, so
it compares no head: it only counts if nothing of the conversation was remembered. Only when another process was faster
are the rows locked first, in the order of their keys, and all of it done again.
"""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from outlive.base import BrokenError, ConversationId, CrashPoint, NotFoundError, OutliveError, StepId, reach
from outlive.conversation.append import Known, LastAttempt, Summary
from outlive.conversation.backends.group import Done, GroupCommitter, Results
from outlive.conversation.backends.lineage import Segment
from outlive.conversation.backends.memory import Memory, plan_all
from outlive.conversation.backends.postgres_write import write_statement
from outlive.conversation.events import SEQ_MAX, Event
from outlive.conversation.hub import open_tasks
from outlive.conversation.log import READ_CHARACTERS, READ_LIMIT, Append, Appended, OpenAttempt
from outlive.storage.migrate import read_migrations
from outlive.storage.postgres import Connection, PostgresDatabase

MIGRATIONS = read_migrations("conversations", Path(__file__).parent / "migrations" / "postgres")

EVENT_COLUMNS = "e.seq, e.id, e.turn, e.step, e.attempt, e.type, e.v, e.at, e.actor, e.data, e.blob"

# Each LIMIT keeps PostgreSQL to one look into an index, however small the table was when it made the plan.
_KNOWN_OF = """
SELECT w.n, c.key, s.head, s.state, s.turn, s.machine, c.archived_at, s.updated_at, e.seq, e.batch_size,
    a.attempt, a.status
FROM {wanted}
CROSS JOIN LATERAL (SELECT key, archived_at FROM conversations WHERE id = w.id LIMIT 1) c
CROSS JOIN LATERAL (SELECT * FROM summaries WHERE key = c.key LIMIT 1) s
LEFT JOIN LATERAL (
    SELECT seq, batch_size FROM events WHERE batch = w.batch AND conversation = c.key LIMIT 1
) e ON true
LEFT JOIN LATERAL (
    SELECT attempt, status FROM attempts WHERE step = w.step AND conversation = c.key ORDER BY attempt DESC LIMIT 1
) a ON true
"""
_SELECT_KNOWN = _KNOWN_OF.format(
    wanted="unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (id, batch, step, n)"
)
_SELECT_KNOWN_OF_ONE = _KNOWN_OF.format(wanted="(VALUES ($1::text, $2::text, $3::text, 1)) AS w (id, batch, step, n)")
_LOCK = """
SELECT s.key FROM summaries s WHERE s.key IN (SELECT key FROM conversations WHERE id = ANY($1::text[]))
ORDER BY s.key FOR UPDATE
"""
_SELECT_EVENTS = f"""
SELECT {EVENT_COLUMNS} FROM events e WHERE e.conversation = $1 AND e.seq BETWEEN $2 AND $3 ORDER BY e.seq LIMIT $4
"""  # noqa: S608
# The same, up to where enough text was read: the first always, then while what came before is below the bound.
_SELECT_PAGE = f"""
SELECT {EVENT_COLUMNS} FROM (
    SELECT *, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS before FROM events
    WHERE conversation = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq LIMIT $4
) e WHERE e.before < $5 ORDER BY e.seq
"""  # noqa: S608
_SELECT_SEGMENTS = """
SELECT c.key, c.first_seq, s.head FROM conversations c JOIN summaries s ON s.key = c.key WHERE c.id = $1
"""
_SELECT_SHARED = "SELECT ancestor, first_seq, last_seq FROM lineage WHERE conversation = $1 ORDER BY first_seq"
_SELECT_OPEN = """
SELECT step, attempt, start_seq, turn FROM attempts
WHERE conversation = $1 AND start_seq <= $2 AND (end_seq IS NULL OR end_seq > $2) AND start_seq >=
    (SELECT floor FROM attempts WHERE conversation = $1 AND start_seq <= $2 ORDER BY start_seq DESC LIMIT 1)
ORDER BY start_seq
"""
_SELECT_HEADS = """
SELECT c.id, s.head FROM conversations c JOIN summaries s ON s.key = c.key WHERE c.id = ANY($1::text[])
"""


async def segments_of(connection: Connection, conversation: ConversationId) -> list[Segment]:
    """Where the events of a conversation are, in order; its own come last."""
    row = await connection.fetchrow(_SELECT_SEGMENTS, conversation)
    if row is None:
        raise NotFoundError("conversation.not_found", f"There is no conversation {conversation!r}.")
    own = Segment._make(row)
    if own.first == 1:
        return [own]
    return [*map(Segment._make, await connection.fetch(_SELECT_SHARED, own.key)), own]


async def _read_known(connection: Connection, appends: list[Append], into: Known) -> None:
    wanted = [(append.conversation, append.key, append.writer and append.writer.step) for append in appends]
    if len(wanted) == 1:
        rows = await connection.fetch(_SELECT_KNOWN_OF_ONE, *wanted[0])
    else:
        rows = await connection.fetch(_SELECT_KNOWN, *map(list, zip(*wanted, strict=True)))
    for n, key, head, state, turn, machine, archived_at, updated_at, seq, size, attempt, status in rows:
        append = appends[n - 1]
        if append.conversation not in into.summaries:
            summary = Summary(key, head, state, turn, machine, archived_at, updated_at)
            into.summaries[append.conversation] = summary
        if seq is not None:  # rare: a repeat
            events = await connection.fetch(_SELECT_EVENTS, key, seq, seq + size - 1, size)
            into.batches[append.conversation, append.key] = [Event._make(row) for row in events]
        if attempt is not None and append.writer is not None:
            into.attempts[append.conversation, StepId(append.writer.step)] = LastAttempt(attempt, status)


async def _commit(
    connection: Connection, appends: list[Append], look_up: list[Append], memory: Memory
) -> Results | None:
    """The answers; or None if that did not do, and nothing was written: a conversation is not as it was remembered or
    read, one is refused that might not be, or a batch that was not looked up may be in the log."""
    known = memory.known
    # Of these conversations all that is known is read now, by one statement. Of the others something is remembered: a
    # look for what is missing leaves that as it is, and it may be out of date.
    read_whole = [append for append in look_up if append.conversation not in known.summaries]
    if look_up:
        await _read_known(connection, look_up, known)
    conversations = {append.conversation for append in appends} & known.summaries.keys()
    heads = {conversation: known.summaries[conversation].head for conversation in conversations}
    planned = plan_all(appends, known, read_whole)
    if planned is None:
        return None
    into, results = planned
    reach(CrashPoint.LOG_BEFORE_COMMIT)
    if into.events:
        sql, values = write_statement(known, heads, into)
        if not await connection.fetchval(sql, *values):
            return None
    return results


class PostgresEventLog:
    """`EventLog` in a PostgreSQL database that many processes may share. Made by `open_postgres_log`."""

    def __init__(self, database: PostgresDatabase, writing: PostgresDatabase | None = None) -> None:
        self._database = database
        self._writing = writing or database
        self._memory = Memory()
        self._committer = GroupCommitter(self._start)
        # Of the committer's groups there is one at a time.
        self._send, self._receive = anyio.create_memory_object_stream[tuple[list[Append], Done]](1)

    async def run(self) -> None:
        """Commit what is appended, until cancelled."""
        with self._send, self._receive:
            try:
                async for appends, done in self._receive:
                    try:
                        results = await self._commit_group(appends)
                    except OutliveError as error:
                        done(None, error)
                    else:
                        done(results, None)
            finally:
                self._committer.close()

    def _start(self, appends: list[Append], done: Done) -> None:
        self._send.send_nowait((appends, done))

    async def append(self, append: Append) -> Appended:
        return await self._committer.append(append)

    async def read(self, conversation: ConversationId, after: int, limit: int) -> list[Event]:
        wanted = max(0, min(limit, READ_LIMIT))

        async def select(connection: Connection) -> list[Event]:
            events: list[Event] = []
            for key, first, last in await segments_of(connection, conversation):
                if last <= after or len(events) >= wanted:
                    continue
                begin = max(first, after + 1)
                rows = await connection.fetch(_SELECT_PAGE, key, begin, last, wanted - len(events), READ_CHARACTERS)
                events += map(Event._make, rows)
                if events[-1].seq < last:
                    break
            return events

        return await self._database.run(select)

    async def head(self, conversation: ConversationId) -> int:
        heads = await self.heads([conversation])
        if conversation not in heads:
            raise NotFoundError("conversation.not_found", f"There is no conversation {conversation!r}.")
        return heads[conversation]

    async def heads(self, conversations: Collection[ConversationId]) -> dict[ConversationId, int]:
        async def select(connection: Connection) -> dict[ConversationId, int]:
            rows = await connection.fetch(_SELECT_HEADS, list(conversations))
            return {ConversationId(id): head for id, head in rows}

        return await self._database.run(select)

    async def open_attempts(self, conversation: ConversationId, at: int) -> list[OpenAttempt]:
        async def select(connection: Connection) -> list[OpenAttempt]:
            for key, first, _ in reversed(await segments_of(connection, conversation)):
                if first <= at:  # the newest part that had begun; what was open before it is not open in it
                    rows = await connection.fetch(_SELECT_OPEN, key, min(at, SEQ_MAX))
                    return [OpenAttempt._make(row) for row in rows]
            return []

        return await self._database.run(select)

    async def _commit_group(self, appends: list[Append]) -> Results:
        results = await self._writing.run(lambda connection: self._commit_unlocked(connection, appends))
        if results is not None:
            return results

        async def transaction(connection: Connection) -> Results:
            await connection.fetch(_LOCK, [append.conversation for append in appends])
            results = await _commit(connection, appends, appends, Memory())
            if results is None:
                raise BrokenError("log.lock", "A conversation changed while its row was locked.")
            return results

        return await self._writing.write(transaction)

    async def _commit_unlocked(self, connection: Connection, appends: list[Append]) -> Results | None:
        """From memory, or else with a look first; None if somebody else was faster."""
        memory, self._memory = self._memory, Memory()
        results = await _commit(connection, appends, memory.missing(appends), memory)
        if results is None:
            memory = Memory()
            results = await _commit(connection, appends, appends, memory)
        if results is not None:
            self._memory = memory.tidy()
        return results


@asynccontextmanager
async def open_postgres_log(database: PostgresDatabase) -> AsyncIterator[PostgresEventLog]:
    """The log in a migrated database. Its committing loop ends with the context."""
    async with database.hold() as writing, open_tasks() as tasks:
        log = PostgresEventLog(database, writing)
        tasks.start_soon(log.run)
        yield log
