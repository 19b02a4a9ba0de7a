"""Decisions on egress in SQLite."""

from collections.abc import Sequence

from outlive.base import MachineId
from outlive.governance.egress_records import EgressDecision
from outlive.machine.backends import egress_rows
from outlive.storage.sqlite import SqliteDatabase


class SqliteEgress:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def store(self, decisions: Sequence[EgressDecision]) -> None:
        rows = egress_rows.to_rows(decisions)
        await self._database.write(lambda connection: connection.executemany(egress_rows.INSERT, rows))

    async def list(self, machine: MachineId, *, after: int, limit: int) -> Sequence[tuple[int, EgressDecision]]:
        rows = await self._database.read(
            lambda connection: connection.execute(egress_rows.SELECT, (machine, after, max(limit, 0))).fetchall()
        )
        return [(n, egress_rows.to_decision(doc)) for n, doc in rows]
