"""How a group of appends is written to SQLite: what is looked up, what is remembered, and in which rows it ends."""

import sqlite3
import zlib
from typing import Any

from outlive.base import CrashPoint, reach
from outlive.conversation.append import Known, LastAttempt, Plan, Summary
from outlive.conversation.backends.group import Results
from outlive.conversation.backends.memory import Memory, plan_all
from outlive.conversation.backends.rows import attempt_rows, event_rows, shown_rows
from outlive.conversation.backends.search import TEXT_FIELDS, words_of, words_of_stored
from outlive.conversation.events import Event, text_of
from outlive.conversation.log import SEARCHED_CHARACTERS, Append

EVENT_COLUMNS = "place & 4294967295, id, turn, step, attempt, type, v, at, actor, data, blob"
# The newest event of conversation `c`: its seq is the head, its time the time of the last change.
NEWEST = """
JOIN events newest ON newest.place =
    (SELECT max(place) FROM events WHERE place BETWEEN c.key << 32 AND c.key << 32 | 4294967295)
"""

# One look per append: its conversation, and whether its batch is there already. (The + lets the index be used.)
_SELECT_KNOWN = f"""
SELECT c.key, newest.place & 4294967295, s.state, s.turn, s.machine, c.archived_at, newest.at,
    (SELECT e.place FROM events e WHERE e.place >> 32 = +c.key AND e.batch = ?2)
FROM conversations c JOIN summaries s ON s.key = c.key {NEWEST} WHERE c.id = ?1
"""  # noqa: S608
_SELECT_LAST_ATTEMPT = """
SELECT attempt, status FROM attempts WHERE start >> 32 = ? AND step = ? ORDER BY attempt DESC LIMIT 1
"""
_SELECT_BATCH = f"""
SELECT {EVENT_COLUMNS} FROM events
WHERE place >= ?1 AND place < ?1 + (SELECT batch_size FROM events WHERE place = ?1) ORDER BY place
"""  # noqa: S608
INSERT_EVENTS = """
INSERT INTO events (place, id, turn, step, attempt, type, v, at, actor, data, blob, batch, batch_size)
VALUES (? << 32 | ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
INSERT_UNINDEXED = "INSERT OR IGNORE INTO unindexed (conversation, from_seq) VALUES (?, ?)"
_FIELD_CASES = " ".join(f"WHEN '{type}' THEN '$.{field}'" for type, field in TEXT_FIELDS.items())
_UNINDEXED = f"""
FROM unindexed u JOIN events e
ON e.place BETWEEN u.conversation << 32 | u.from_seq AND u.conversation << 32 | 4294967295
WHERE e.type IN ({", ".join(f"'{type}'" for type in TEXT_FIELDS)}) AND e.blob IS NULL AND typeof(e.data) = 'text'
"""
# Of plain ASCII without escapes SQLite takes the text out itself, and its tokenizer makes the same words of it as
# `words_of`, in a fraction of the time. Other payloads are read.
_IS_PLAIN = "(length(e.data) = length(CAST(e.data AS BLOB)) AND NOT instr(e.data, '\\u'))"
_INDEX_PLAIN = f"""
INSERT INTO texts (rowid, words)
SELECT place, substr(text, 1, {SEARCHED_CHARACTERS}) FROM (
    SELECT e.place, json_extract(e.data, CASE e.type {_FIELD_CASES} END) AS text {_UNINDEXED} AND {_IS_PLAIN}
) WHERE text <> ''
"""  # noqa: S608
_SELECT_OTHERS = f"SELECT e.place, e.type, e.data {_UNINDEXED} AND NOT {_IS_PLAIN}"
INSERT_TEXTS = "INSERT INTO texts (rowid, words) VALUES (?, ?)"
_UPDATE_SHOWN = """
UPDATE conversations SET archived_at = coalesce(?2, archived_at), model = coalesce(?3, model) WHERE key = ?1
"""
_UPDATE_SUMMARIES = "UPDATE summaries SET state = ?, turn = ?, machine = ? WHERE key = ?"
_INSERT_ATTEMPTS = """
INSERT INTO attempts (start, floor, step, attempt, turn, status, end_seq)
VALUES (?1 << 32 | ?2, min(?1 << 32 | ?3, coalesce(
    (SELECT min(start) FROM attempts WHERE start BETWEEN ?1 << 32 AND ?1 << 32 | 4294967295 AND end_seq IS NULL),
    ?1 << 32 | ?3
)), ?4, ?5, ?6, ?7, ?8)
"""
_END_ATTEMPTS = "UPDATE attempts SET end_seq = ?, status = ? WHERE start >> 32 = ? AND step = ? AND attempt = ?"
_END_TURNS = """
UPDATE attempts SET end_seq = ?2, status = 'abandoned'
WHERE start BETWEEN ?1 << 32 AND ?1 << 32 | ?2 AND end_seq IS NULL
"""

_DATA = 1 + Event._fields.index("data_json")  # in an `EventRow`, which begins with the key
_UNINDEXED_LIMIT = 256  # texts that wait for their index


_PACKED_ABOVE = 4_096  # characters of a payload: what is longer is compressed, since SQLite fills whole pages with it


def pack(data_json: str) -> str | bytes:
    """A payload as it is stored."""
    return data_json if len(data_json) <= _PACKED_ABOVE else zlib.compress(data_json.encode(), 1)


def to_event(row: tuple[Any, ...]) -> Event:
    """An event from the columns `EVENT_COLUMNS`."""
    event = Event._make(row)
    if isinstance(event.data_json, bytes):
        return event._replace(data_json=zlib.decompress(event.data_json).decode())
    return event


def place_of(key: int, seq: int) -> int:
    return key << 32 | seq


class SqliteWriter:
    """Writes groups of appends, one transaction each, in the writing thread; remembers what it left (`memory.py`)."""

    def __init__(self) -> None:
        self._memory = Memory()
        self._version: tuple[int, int] | None = None
        self._unindexed: set[int] = set()  # keys of conversations that are known to be in `unindexed`
        self._waiting_texts = 0

    def forget(self) -> None:
        """The last transaction came to nothing."""
        self._version = None

    def commit(self, appends: list[Append], connection: sqlite3.Connection) -> Results:
        """Called inside a transaction, which is committed afterwards."""
        # Anything that another connection has committed changes the first, anything written over this one the second.
        (data_version,) = connection.execute("PRAGMA data_version").fetchone()
        if self._version != (data_version, connection.total_changes):
            self._memory = Memory()
            self._unindexed.clear()
        memory, self._memory, self._version = self._memory, Memory(), None
        results = self._write_from_memory(connection, appends, memory)
        if results is None:
            memory = Memory()
            results = self._write(connection, appends, appends, memory)
            assert results is not None
        self._memory = memory.tidy()
        self._version = (data_version, connection.total_changes)
        reach(CrashPoint.LOG_BEFORE_COMMIT)
        return results

    def _write_from_memory(
        self, connection: sqlite3.Connection, appends: list[Append], memory: Memory
    ) -> Results | None:
        try:
            return self._write(connection, appends, memory.missing(appends), memory)
        except sqlite3.IntegrityError:  # a batch that was not looked for is there
            connection.execute("ROLLBACK")
            self._unindexed.clear()  # what stands there may be another's doing by the time we are back
            connection.execute("BEGIN IMMEDIATE")
            return None

    def _write(
        self, connection: sqlite3.Connection, appends: list[Append], look_up: list[Append], memory: Memory
    ) -> Results | None:
        known = memory.known
        _read_known(connection, look_up, known)
        shown = {
            append.conversation: (s.state, s.turn, s.machine)
            for append in appends
            if (s := known.summaries.get(append.conversation)) is not None
        }
        planned = plan_all(appends, known, look_up)
        if planned is None:
            return None
        into, results = planned
        if into.events:
            rows = event_rows(into)
            for row in rows:
                row[_DATA] = pack(row[_DATA])
            connection.executemany(INSERT_EVENTS, rows)
            self._write_texts(connection, into)
            _write_attempts(connection, into)
            if shown_now := shown_rows(into):
                connection.executemany(_UPDATE_SHOWN, shown_now)
            changed = [
                (s.state, s.turn, s.machine, s.key)
                for conversation in into.touched
                if ((s := known.summaries[conversation]).state, s.turn, s.machine) != shown[conversation]
            ]
            if changed:
                connection.executemany(_UPDATE_SUMMARIES, changed)
        return results

    def _write_texts(self, connection: sqlite3.Connection, into: Plan) -> None:
        for key, _, new, event in into.events:
            if new.type not in TEXT_FIELDS:
                continue
            if event.blob is not None or len(event.data_json) > _PACKED_ABOVE:  # SQLite cannot read its text later
                words = words_of(text_of(new.data) or "")
                connection.execute(INSERT_TEXTS, (place_of(key, event.seq), " ".join(words)))
                continue
            self._waiting_texts += 1
            if key not in self._unindexed:
                self._unindexed.add(key)
                connection.execute(INSERT_UNINDEXED, (key, event.seq))
        if self._waiting_texts >= _UNINDEXED_LIMIT:
            self._waiting_texts = 0
            self._unindexed.clear()
            index_texts(connection)


def _read_known(connection: sqlite3.Connection, appends: list[Append], into: Known) -> None:
    for append in appends:
        row = connection.execute(_SELECT_KNOWN, (append.conversation, append.key)).fetchone()
        if row is None:
            continue
        key, place = row[0], row[7]
        if append.conversation not in into.summaries:
            into.summaries[append.conversation] = Summary(*row[:7])
        if place is not None:
            rows = connection.execute(_SELECT_BATCH, (place,))
            into.batches[append.conversation, append.key] = [to_event(row) for row in rows]
        if (writer := append.writer) is not None:
            last = connection.execute(_SELECT_LAST_ATTEMPT, (key, writer.step)).fetchone()
            if last is not None:
                into.attempts[append.conversation, writer.step] = LastAttempt(*last)


def index_texts(connection: sqlite3.Connection) -> None:
    """Put the texts that wait into the index."""
    connection.execute(_INDEX_PLAIN)
    others = connection.execute(_SELECT_OTHERS).fetchall()
    texts = [(place, words) for place, type, data in others if (words := " ".join(words_of_stored(type, data)))]
    connection.executemany(INSERT_TEXTS, texts)
    connection.execute("DELETE FROM unindexed")
    # Makes FTS5 write now what it would write when the transaction is committed: `total_changes` then stays as it is.
    connection.execute("SAVEPOINT indexed")
    connection.execute("RELEASE indexed")


def _write_attempts(connection: sqlite3.Connection, into: Plan) -> None:
    if into.changes:
        rows = attempt_rows(into)
        connection.executemany(
            _INSERT_ATTEMPTS,
            [(r.key, r.start, r.floor, r.step, r.attempt, r.turn, r.status, r.end) for r in rows.started],
        )
        connection.executemany(_END_ATTEMPTS, [(e.end, e.status, e.key, e.step, e.attempt) for e in rows.ended])
        connection.executemany(_END_TURNS, list(rows.turns_ended.items()))
