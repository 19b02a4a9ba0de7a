"""The one statement that writes a group of appends to PostgreSQL: all of it; or nothing, if a head has moved or a batch
is there already.

Every part of the statement sees the database as it was when the statement began. So no two parts may change the same
row, and a row that is new and changed at once comes in its final state (`rows.py` sees to both).
"""

from functools import cache
from typing import Any

from outlive.base import ConversationId
from outlive.conversation.append import Known, Plan
from outlive.conversation.backends.rows import attempt_rows, event_rows, shown_rows, text_rows

# Locks the conversations one by one, in the order they are given (that of their keys), if the head is still the one
# that is expected. A row that changed while its lock was waited for is looked at again.
_MANY = """
WITH fresh AS MATERIALIZED (
    SELECT count(*) = cardinality({0}::bigint[]) AND NOT EXISTS (
        SELECT FROM unnest({7}::bigint[], {19}::text[]) AS w (key, batch)
        CROSS JOIN LATERAL (SELECT FROM events WHERE batch = w.batch AND conversation = w.key LIMIT 1) found
    ) AS is_fresh
    FROM unnest({0}::bigint[], {1}::bigint[]) AS w (key, head)
    CROSS JOIN LATERAL (SELECT FROM summaries s WHERE s.key = w.key AND s.head = w.head FOR UPDATE) held
), summarized AS (
    UPDATE summaries s
    SET head = w.head, state = w.state, turn = w.turn, machine = w.machine, updated_at = w.updated_at
    FROM unnest({0}::bigint[], {2}::bigint[], {3}::text[], {4}::text[], {5}::text[], {6}::text[])
        AS w (key, head, state, turn, machine, updated_at)
    WHERE s.key = w.key AND (SELECT is_fresh FROM fresh)
), written AS (
    INSERT INTO events (conversation, seq, id, turn, step, attempt, type, v, at, actor, data, blob, batch, batch_size)
    SELECT * FROM unnest({7}::bigint[], {8}::bigint[], {9}::text[], {10}::text[], {11}::text[], {12}::int[],
        {13}::text[], {14}::int[], {15}::text[], {16}::text[], {17}::text[], {18}::text[], {19}::text[],
        {20}::int[])
    WHERE (SELECT is_fresh FROM fresh)
)"""
# The same for one event. It is what a writer on its own sends all the time, and takes a third of the time.
_ONE = """
WITH summarized AS (
    UPDATE summaries SET head = {2}, state = {3}, turn = {4}, machine = {5}, updated_at = {6}
    WHERE key = {0} AND head = {1}
    AND NOT EXISTS (SELECT FROM events WHERE batch = {19} AND conversation = {0}) RETURNING key
), fresh AS MATERIALIZED (
    SELECT count(*) = 1 AS is_fresh FROM summarized
), written AS (
    INSERT INTO events (conversation, seq, id, turn, step, attempt, type, v, at, actor, data, blob, batch, batch_size)
    SELECT {7}::bigint, {8}::bigint, {9}::text, {10}::text, {11}::text, {12}::int, {13}::text, {14}::int,
        {15}::text, {16}::text, {17}::text, {18}::text, {19}::text, {20}::int
    WHERE (SELECT is_fresh FROM fresh)
)"""
_TEXT = """, indexed AS (
    INSERT INTO texts (conversation, seq, words)
    SELECT {0}::bigint, {1}::bigint, array_to_tsvector(string_to_array({2}::text, ' '))
    WHERE (SELECT is_fresh FROM fresh)
)"""
_TEXTS = """, indexed AS (
    INSERT INTO texts (conversation, seq, words)
    SELECT w.key, w.seq, array_to_tsvector(string_to_array(w.words, ' '))
    FROM unnest({0}::bigint[], {1}::bigint[], {2}::text[]) AS w (key, seq, words)
    WHERE (SELECT is_fresh FROM fresh)
)"""
_SHOWN = """, shown AS (
    UPDATE conversations c
    SET archived_at = coalesce(w.archived_at, c.archived_at), model = coalesce(w.model, c.model)
    FROM unnest({0}::bigint[], {1}::text[], {2}::text[]) AS w (key, archived_at, model)
    WHERE c.key = w.key AND (SELECT is_fresh FROM fresh)
)"""
_STARTED = """, started AS (
    INSERT INTO attempts (conversation, start_seq, floor, step, attempt, turn, status, end_seq)
    SELECT w.key, w.start_seq, coalesce(
        (SELECT min(a.start_seq) FROM attempts a WHERE a.conversation = w.key AND a.end_seq IS NULL), w.floor
    ), w.step, w.attempt, w.turn, w.status, w.end_seq
    FROM unnest({0}::bigint[], {1}::bigint[], {2}::bigint[], {3}::text[], {4}::int[], {5}::text[], {6}::text[],
        {7}::bigint[]) AS w (key, start_seq, floor, step, attempt, turn, status, end_seq)
    WHERE (SELECT is_fresh FROM fresh)
)"""
_ENDED = """, ended AS (
    UPDATE attempts a SET end_seq = w.end_seq, status = w.status
    FROM unnest({0}::bigint[], {1}::text[], {2}::int[], {3}::bigint[], {4}::text[])
        AS w (key, step, attempt, end_seq, status)
    WHERE a.step = w.step AND a.conversation = w.key AND a.attempt = w.attempt AND (SELECT is_fresh FROM fresh)
), turned AS (
    UPDATE attempts a SET end_seq = w.end_seq, status = 'abandoned'
    FROM unnest({5}::bigint[], {6}::bigint[]) AS w (key, end_seq)
    WHERE a.conversation = w.key AND a.end_seq IS NULL AND a.start_seq < w.end_seq
    AND NOT EXISTS (
        SELECT FROM unnest({0}::bigint[], {1}::text[], {2}::int[]) AS x (key, step, attempt)
        WHERE x.key = a.conversation AND x.step = a.step AND x.attempt = a.attempt
    ) AND (SELECT is_fresh FROM fresh)
)"""
_PARTS = {  # each with the number of its parameters
    "many": (_MANY, 21),
    "texts": (_TEXTS, 3),
    "one": (_ONE, 21),
    "text": (_TEXT, 3),
    "shown": (_SHOWN, 3),
    "started": (_STARTED, 8),
    "ended": (_ENDED, 7),
}


@cache
def _statement(*parts: str) -> str:
    """The parts that a group needs, their parameters numbered through."""
    sql, number = "", 0
    for part in parts:
        template, count = _PARTS[part]
        sql += template.format(*(f"${number + i + 1}" for i in range(count)))
        number += count
    return sql + "\nSELECT is_fresh FROM fresh"


def _columns(rows: list[Any], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]


def write_statement(known: Known, heads: dict[ConversationId, int], into: Plan) -> tuple[str, list[Any]]:
    """The statement and its values. It answers whether it was done; it expects `heads`."""
    touched = [(known.summaries[conversation], heads[conversation]) for conversation in into.touched]
    touched.sort(key=lambda pair: pair[0].key)
    values: list[Any] = _columns(
        [(s.key, head, s.head, s.state, s.turn, s.machine, s.updated_at) for s, head in touched], 7
    ) + _columns(event_rows(into), 14)
    texts = [(key, seq, " ".join(words)) for key, seq, words in text_rows(into)]
    if len(into.events) == 1:
        parts = ["one", "text"] if texts else ["one"]
        values = [value for (value,) in values]
        values += texts[0] if texts else ()
    else:
        parts = ["many", "texts"] if texts else ["many"]
        values += _columns(texts, 3) if texts else []
    if shown := shown_rows(into):
        parts.append("shown")
        values += _columns(shown, 3)
    if into.changes:
        rows = attempt_rows(into)
        if rows.started:
            parts.append("started")
            values += _columns(
                [(r.key, r.start, r.floor, r.step, r.attempt, r.turn, r.status, r.end) for r in rows.started], 8
            )
        if rows.ended or rows.turns_ended:
            parts.append("ended")
            values += _columns([(e.key, e.step, e.attempt, e.end, e.status) for e in rows.ended], 5)
            values += _columns(list(rows.turns_ended.items()), 2)
    return _statement(*parts), values
