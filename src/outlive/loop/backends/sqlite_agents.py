"""Versions of agents in SQLite. Each call is one transaction, or one statement that only reads."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from outlive.loop.agents import Agent, AgentDefinition, follows
from outlive.loop.backends import agent_rows
from outlive.loop.backends.agent_rows import to_agent, to_row
from outlive.storage.migrate import read_migrations
from outlive.storage.sqlite import SqliteDatabase

MIGRATIONS = read_migrations("loop", Path(__file__).parent / "migrations" / "sqlite")


class SqliteAgents:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def put(self, definition: AgentDefinition, *, is_builtin: bool, by: str, at: str) -> Agent:
        def write(connection: sqlite3.Connection) -> Agent:
            newest = _one(connection, agent_rows.NEWEST, definition.name)
            version = follows(newest, definition, is_builtin=is_builtin)
            if version is None:
                assert newest is not None
                return newest
            made = Agent(definition, version, is_builtin, by, at)
            connection.execute(agent_rows.INSERT, to_row(made))
            return made

        return await self._database.write(write)

    async def newest(self, name: str) -> Agent | None:
        return await self._database.read(lambda connection: _one(connection, agent_rows.NEWEST, name))

    async def get(self, name: str, version: int) -> Agent | None:
        return await self._database.read(lambda connection: _one(connection, agent_rows.ONE, name, version))

    async def list(self) -> Sequence[Agent]:
        rows = await self._database.read(lambda connection: connection.execute(agent_rows.ALL).fetchall())
        return [to_agent(row) for row in rows]


def _one(connection: sqlite3.Connection, statement: str, *values: str | int) -> Agent | None:
    row = connection.execute(statement, values).fetchone()
    return None if row is None else to_agent(row)
