"""Approvals in the log of a `PostgresEventLog`: found by the keys of their batches, in the index that is there
anyway."""

from typing import Any

from outlive.base import ApprovalId, ConversationId
from outlive.conversation.approvals import ASK_LENGTH, DECIDE_PREFIX, FIRST_KEY, LAST_KEY, Found, ask_key
from outlive.conversation.backends.postgres_log import EVENT_COLUMNS
from outlive.conversation.events import Event
from outlive.storage.postgres import Connection, PostgresDatabase

_SELECT = f"""
SELECT c.id AS of, s.turn AS open_turn, {EVENT_COLUMNS}, {EVENT_COLUMNS.replace("e.", "d.")}
FROM events e JOIN conversations c ON c.key = e.conversation JOIN summaries s ON s.key = e.conversation
LEFT JOIN events d ON d.batch = '{DECIDE_PREFIX}' || substr(e.batch, {ASK_LENGTH + 1})
    AND d.conversation = e.conversation AND d.type = 'approval.decided'
"""  # noqa: S608
_FIND = _SELECT + "WHERE e.batch = $1 LIMIT 1"
_LIST = _SELECT + "WHERE e.batch > $1 AND e.batch < $2 {which} ORDER BY e.batch DESC LIMIT $3"
_WHICH = {
    None: "",
    True: "AND d.id IS NULL AND s.turn = e.turn",
    False: "AND (d.id IS NOT NULL OR s.turn IS DISTINCT FROM e.turn)",
}
_WIDTH = len(Event._fields)


def _found(row: Any) -> Found:
    conversation, open_turn, *rest = tuple(row)
    decided = rest[_WIDTH:]
    return Found(
        ConversationId(conversation),
        Event._make(rest[:_WIDTH]),
        Event._make(decided) if decided[1] is not None else None,
        open_turn,
    )


class PostgresApprovals:
    """`ApprovalIndex` in the database of a `PostgresEventLog`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def find(self, approval: ApprovalId) -> Found | None:
        async def select(connection: Connection) -> Found | None:
            row = await connection.fetchrow(_FIND, ask_key(approval))
            return None if row is None else _found(row)

        return await self._database.run(select)

    async def list(
        self, *, limit: int, before: ApprovalId | None = None, is_pending: bool | None = None
    ) -> list[Found]:
        async def select(connection: Connection) -> list[Found]:
            last = ask_key(before) if before else LAST_KEY
            rows = await connection.fetch(_LIST.format(which=_WHICH[is_pending]), FIRST_KEY, last, max(0, limit))
            return [_found(row) for row in rows]

        return await self._database.run(select)
