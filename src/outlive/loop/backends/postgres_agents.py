"""Versions of agents in PostgreSQL. Each call is one transaction, or one statement that only reads."""

from collections.abc import Sequence
from pathlib import Path

from outlive.loop.agents import Agent, AgentDefinition, follows
from outlive.loop.backends import agent_rows
from outlive.loop.backends.agent_rows import to_agent, to_row
from outlive.storage.migrate import read_migrations
from outlive.storage.postgres import Connection, PostgresDatabase

MIGRATIONS = read_migrations("loop", Path(__file__).parent / "migrations" / "postgres")


def numbered(sql: str) -> str:
    first, *others = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(others, 1))


_NEWEST = numbered(agent_rows.NEWEST)
_ONE = numbered(agent_rows.ONE)
_INSERT = numbered(agent_rows.INSERT)
# There may be no row yet that could be locked. Ends with the transaction.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('agents/' || $1, 0))"


class PostgresAgents:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(self, definition: AgentDefinition, *, is_builtin: bool, by: str, at: str) -> Agent:
        async def write(connection: Connection) -> Agent:
            await connection.execute(_LOCK, definition.name)
            newest = await _one(connection, _NEWEST, definition.name)
            version = follows(newest, definition, is_builtin=is_builtin)
            if version is None:
                assert newest is not None
                return newest
            made = Agent(definition, version, is_builtin, by, at)
            await connection.execute(_INSERT, *to_row(made))
            return made

        return await self._database.write(write)

    async def newest(self, name: str) -> Agent | None:
        return await self._database.run(lambda connection: _one(connection, _NEWEST, name))

    async def get(self, name: str, version: int) -> Agent | None:
        return await self._database.run(lambda connection: _one(connection, _ONE, name, version))

    async def list(self) -> Sequence[Agent]:
        rows = await self._database.run(lambda connection: connection.fetch(agent_rows.ALL))
        return [to_agent(row) for row in rows]


async def _one(connection: Connection, statement: str, *values: str | int) -> Agent | None:
    row = await connection.fetchrow(statement, *values)
    return None if row is None else to_agent(row)
