"""The nodes in SQLite. All processes that share the file are on one host, so its clock is the database's."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

from outlive.base import Clock, NodeId, to_text
from outlive.machine.backends.documents import from_doc, to_doc, unknown_node
from outlive.machine.records import Gone, Renewal
from outlive.machine.status import Node
from outlive.storage.sqlite import SqliteDatabase

_RENEW = """
INSERT INTO nodes (id, lease_until, doc) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, doc = excluded.doc
"""

_FORGET = """
DELETE FROM nodes WHERE id = ? AND (? IS NULL OR lease_until < ?)
AND NOT EXISTS (SELECT 1 FROM machines WHERE machines.node = nodes.id)
"""


class SqliteNodes:
    def __init__(self, database: SqliteDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def renew(self, node: Node, *, lease_s: float) -> Renewal:
        def write(connection: sqlite3.Connection) -> Renewal:
            # Read inside: a write that had to wait must not give a lease that began before the wait.
            now = self._clock.now()
            was_over = is_gone(connection, Gone(node.id, margin_s=0), now)
            until = now + timedelta(seconds=lease_s)
            renewed = node.model_copy(update={"lease_until": until})
            connection.execute(_RENEW, (node.id, to_text(until), to_doc(renewed)))
            return Renewal(renewed, was_over=was_over)

        return await self._database.write(write)

    async def get(self, node: NodeId) -> Node:
        row = await self._database.read(
            lambda connection: connection.execute("SELECT doc FROM nodes WHERE id = ?", (node,)).fetchone()
        )
        if row is None:
            raise unknown_node(node)
        return from_doc(Node, row[0])

    async def list(self) -> Sequence[Node]:
        rows = await self._database.read(
            lambda connection: connection.execute("SELECT doc FROM nodes ORDER BY id").fetchall()
        )
        return [from_doc(Node, doc) for (doc,) in rows]

    async def is_gone(self, node: NodeId, *, margin_s: float) -> bool:
        gone, now = Gone(node, margin_s), self._clock.now()
        return await self._database.read(lambda connection: is_gone(connection, gone, now))

    async def forget(self, node: NodeId, *, margin_s: float | None = None) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            before = None if margin_s is None else to_text(self._clock.now() - timedelta(seconds=margin_s))
            connection.execute(_FORGET, (node, before, before))
            return connection.execute("SELECT 1 FROM nodes WHERE id = ?", (node,)).fetchone() is None

        return await self._database.write(write)


def is_gone(connection: sqlite3.Connection, gone: Gone, now: datetime) -> bool:
    since = to_text(now - timedelta(seconds=gone.margin_s))
    held = connection.execute("SELECT 1 FROM nodes WHERE id = ? AND lease_until >= ?", (gone.node, since)).fetchone()
    return held is None
