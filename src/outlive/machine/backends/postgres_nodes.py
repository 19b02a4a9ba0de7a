"""The nodes in PostgreSQL, whose clock alone says how long a lease lasts: those of the hosts may differ."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from outlive.base import NodeId
from outlive.machine.backends.documents import from_doc, to_doc, unknown_node
from outlive.machine.records import Renewal
from outlive.machine.status import Node
from outlive.storage.postgres import PostgresDatabase

_RENEW = """
WITH before AS (SELECT lease_until >= now() AS held FROM nodes WHERE id = $1)
INSERT INTO nodes (id, lease_until, doc) VALUES ($1, now() + $2::interval, $3)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, doc = excluded.doc
RETURNING lease_until, NOT coalesce((SELECT held FROM before), false) AS was_over
"""

_FORGET = """
DELETE FROM nodes WHERE id = $1 AND ($2::interval IS NULL OR lease_until < now() - $2::interval)
AND NOT EXISTS (SELECT 1 FROM machines WHERE machines.node = nodes.id)
"""


class PostgresNodes:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def renew(self, node: Node, *, lease_s: float) -> Renewal:
        values = (node.id, timedelta(seconds=lease_s), to_doc(node))
        row = await self._database.run(lambda connection: connection.fetchrow(_RENEW, *values))
        assert row is not None
        return Renewal(_with_lease(node, row["lease_until"]), was_over=row["was_over"])

    async def get(self, node: NodeId) -> Node:
        row = await self._database.run(
            lambda connection: connection.fetchrow("SELECT lease_until, doc FROM nodes WHERE id = $1", node)
        )
        if row is None:
            raise unknown_node(node)
        return _with_lease(from_doc(Node, row["doc"]), row["lease_until"])

    async def list(self) -> Sequence[Node]:
        rows = await self._database.run(
            lambda connection: connection.fetch("SELECT lease_until, doc FROM nodes ORDER BY id")
        )
        return [_with_lease(from_doc(Node, row["doc"]), row["lease_until"]) for row in rows]

    async def is_gone(self, node: NodeId, *, margin_s: float) -> bool:
        margin = timedelta(seconds=margin_s)
        held = await self._database.run(
            lambda connection: connection.fetchval(
                "SELECT 1 FROM nodes WHERE id = $1 AND lease_until >= now() - $2::interval", node, margin
            )
        )
        return held is None

    async def forget(self, node: NodeId, *, margin_s: float | None = None) -> bool:
        margin = None if margin_s is None else timedelta(seconds=margin_s)
        await self._database.run(lambda connection: connection.execute(_FORGET, node, margin))
        left = await self._database.run(
            lambda connection: connection.fetchval("SELECT 1 FROM nodes WHERE id = $1", node)
        )
        return left is None


def _with_lease(node: Node, until: datetime) -> Node:
    return node.model_copy(update={"lease_until": until})
