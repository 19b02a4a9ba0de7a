"""Approvals in the log of a `SqliteEventLog`: found by the keys of their batches, in the index that is there anyway."""

import sqlite3
from typing import Any

from outlive.base import ApprovalId, ConversationId
from outlive.conversation.approvals import ASK_LENGTH, DECIDE_PREFIX, FIRST_KEY, LAST_KEY, Found, ask_key
from outlive.conversation.backends.sqlite_write import to_event
from outlive.storage.sqlite import SqliteDatabase

_COLUMNS = (
    "{0}.place & 4294967295, {0}.id, {0}.turn, {0}.step, {0}.attempt, {0}.type, {0}.v, {0}.at, {0}.actor, "
    "{0}.data, {0}.blob"
)
# The + lets the index of batches be used, which has the conversation's key behind.
_SELECT = f"""
SELECT c.id, s.turn, {_COLUMNS.format("e")}, {_COLUMNS.format("d")}
FROM events e JOIN conversations c ON c.key = e.place >> 32 JOIN summaries s ON s.key = c.key
LEFT JOIN events d ON d.batch = '{DECIDE_PREFIX}' || substr(e.batch, {ASK_LENGTH + 1}) AND d.place >> 32 = +c.key
    AND d.type = 'approval.decided'
"""  # noqa: S608
_FIND = _SELECT + "WHERE e.batch = :key LIMIT 1"
_LIST = _SELECT + "WHERE e.batch > :first AND e.batch < :before {which} ORDER BY e.batch DESC LIMIT :limit"
_IS_PENDING = "d.id IS NULL AND s.turn IS NOT NULL AND s.turn = e.turn"
_WHICH = {
    None: "",
    True: f"AND {_IS_PENDING}",
    False: "AND (d.id IS NOT NULL OR s.turn IS NULL OR e.turn IS NULL OR s.turn <> e.turn)",
}
_WIDTH = 11  # columns of an event


def _found(row: tuple[Any, ...]) -> Found:
    conversation, open_turn, rest = row[0], row[1], row[2:]
    decided = rest[_WIDTH:]
    return Found(
        ConversationId(conversation),
        to_event(rest[:_WIDTH]),
        to_event(decided) if decided[1] is not None else None,
        open_turn,
    )


class SqliteApprovals:
    """`ApprovalIndex` in the database of a `SqliteEventLog`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def find(self, approval: ApprovalId) -> Found | None:
        def select(connection: sqlite3.Connection) -> Found | None:
            row = connection.execute(_FIND, {"key": ask_key(approval)}).fetchone()
            return None if row is None else _found(row)

        return await self._database.read(select)

    async def list(
        self, *, limit: int, before: ApprovalId | None = None, is_pending: bool | None = None
    ) -> list[Found]:
        values = {"first": FIRST_KEY, "before": ask_key(before) if before else LAST_KEY, "limit": max(0, limit)}

        def select(connection: sqlite3.Connection) -> list[Found]:
            return [_found(row) for row in connection.execute(_LIST.format(which=_WHICH[is_pending]), values)]

        return await self._database.read(select)
