"""The records of environments in SQLite. Each call is one transaction, or one statement that only reads."""

import sqlite3
from collections.abc import Sequence

from outlive.machine.backends import statements
from outlive.machine.backends.documents import (
    check_environment_change,
    from_doc,
    new_references,
    to_doc,
    unknown_environment,
)
from outlive.machine.backends.sqlite_machines import check_ready
from outlive.machine.records import DecideEnvironment
from outlive.machine.status import Environment
from outlive.storage.sqlite import SqliteDatabase


class SqliteEnvironments:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def put(self, environment: Environment) -> Environment:
        row = (environment.digest, environment.checkpoint, to_doc(environment))

        def write(connection: sqlite3.Connection) -> Environment:
            if connection.execute(statements.INSERT_ENVIRONMENT, row).fetchone() is not None:
                check_ready(connection, new_references(None, environment))
            connection.execute(statements.NAME_ENVIRONMENT, (environment.name, environment.digest))
            return _find(connection, environment.name)

        return await self._database.write(write)

    async def get(self, name_or_digest: str) -> Environment:
        return await self._database.read(lambda connection: _find(connection, name_or_digest))

    async def list(self) -> Sequence[Environment]:
        rows = await self._database.read(
            lambda connection: connection.execute(statements.SELECT_ENVIRONMENTS).fetchall()
        )
        return [from_doc(Environment, doc).model_copy(update={"name": name}) for name, doc in rows]

    async def change(self, digest: str, decide: DecideEnvironment) -> Environment:
        def write(connection: sqlite3.Connection) -> Environment:
            row = connection.execute(statements.SELECT_ENVIRONMENT, (digest,)).fetchone()
            if row is None:
                raise unknown_environment(digest)
            current = from_doc(Environment, row[0])
            changed = decide(current)
            check_environment_change(current, changed)
            check_ready(connection, new_references(current, changed))
            connection.execute(statements.UPDATE_ENVIRONMENT, (changed.checkpoint, to_doc(changed), digest))
            return changed

        return await self._database.write(write)


def _find(connection: sqlite3.Connection, name_or_digest: str) -> Environment:
    """By name first: it is shown by the name it was asked for."""
    row = connection.execute(statements.SELECT_NAMED_ENVIRONMENT, (name_or_digest,)).fetchone()
    if row is not None:
        return from_doc(Environment, row[0]).model_copy(update={"name": name_or_digest})
    row = connection.execute(statements.SELECT_ENVIRONMENT, (name_or_digest,)).fetchone()
    if row is None:
        raise unknown_environment(name_or_digest)
    return from_doc(Environment, row[0])
