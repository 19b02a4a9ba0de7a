"""Decisions on egress in PostgreSQL."""

from collections.abc import Sequence

from outlive.base import MachineId
from outlive.governance.egress_records import EgressDecision
from outlive.machine.backends import egress_rows
from outlive.machine.backends.documents import numbered
from outlive.storage.postgres import Connection, PostgresDatabase

_INSERT = numbered(egress_rows.INSERT)
_SELECT = numbered(egress_rows.SELECT)
# Those who store for the same machine at once go one after the other; it ends with the transaction.
_TAKE_TURNS = "SELECT pg_advisory_xact_lock(hashtextextended('egress_decisions ' || $1, 0))"


class PostgresEgress:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def store(self, decisions: Sequence[EgressDecision]) -> None:
        rows = egress_rows.to_rows(decisions)

        async def write(connection: Connection) -> None:
            for machine in sorted({each.machine for each in decisions}):  # in one order, so that nobody waits in a ring
                await connection.execute(_TAKE_TURNS, machine)
            await connection.executemany(_INSERT, rows)

        await self._database.write(write)

    async def list(self, machine: MachineId, *, after: int, limit: int) -> Sequence[tuple[int, EgressDecision]]:
        rows = await self._database.run(lambda connection: connection.fetch(_SELECT, machine, after, max(limit, 0)))
        return [(row["n"], egress_rows.to_decision(row["doc"])) for row in rows]
