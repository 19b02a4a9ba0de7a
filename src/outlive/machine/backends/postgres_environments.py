"""The records of environments in PostgreSQL. Each call is one transaction, or one statement that only reads."""

from collections.abc import Sequence

from outlive.machine.backends import statements
from outlive.machine.backends.documents import (
    check_environment_change,
    from_doc,
    new_references,
    numbered,
    to_doc,
    unknown_environment,
)
from outlive.machine.backends.postgres_machines import check_ready
from outlive.machine.records import DecideEnvironment
from outlive.machine.status import Environment
from outlive.storage.postgres import Connection, PostgresDatabase

_INSERT = numbered(statements.INSERT_ENVIRONMENT)
_NAME = numbered(statements.NAME_ENVIRONMENT)
_SELECT = numbered(statements.SELECT_ENVIRONMENT)
_SELECT_NAMED = numbered(statements.SELECT_NAMED_ENVIRONMENT)
_UPDATE = numbered(statements.UPDATE_ENVIRONMENT)


class PostgresEnvironments:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(self, environment: Environment) -> Environment:
        row = (environment.digest, environment.checkpoint, to_doc(environment))

        async def write(connection: Connection) -> Environment:
            if await connection.fetchval(_INSERT, *row) is not None:
                await check_ready(connection, new_references(None, environment))
            await connection.execute(_NAME, environment.name, environment.digest)
            return await _find(connection, environment.name)

        return await self._database.write(write)

    async def get(self, name_or_digest: str) -> Environment:
        return await self._database.run(lambda connection: _find(connection, name_or_digest))

    async def list(self) -> Sequence[Environment]:
        rows = await self._database.run(lambda connection: connection.fetch(statements.SELECT_ENVIRONMENTS))
        return [from_doc(Environment, row["doc"]).model_copy(update={"name": row["name"]}) for row in rows]

    async def change(self, digest: str, decide: DecideEnvironment) -> Environment:
        async def write(connection: Connection) -> Environment:
            doc = await connection.fetchval(f"{_SELECT} FOR UPDATE", digest)
            if doc is None:
                raise unknown_environment(digest)
            current = from_doc(Environment, doc)
            changed = decide(current)
            check_environment_change(current, changed)
            await check_ready(connection, new_references(current, changed))
            await connection.execute(_UPDATE, changed.checkpoint, to_doc(changed), digest)
            return changed

        return await self._database.write(write)


async def _find(connection: Connection, name_or_digest: str) -> Environment:
    """By name first: it is shown by the name it was asked for."""
    doc = await connection.fetchval(_SELECT_NAMED, name_or_digest)
    if doc is not None:
        return from_doc(Environment, doc).model_copy(update={"name": name_or_digest})
    doc = await connection.fetchval(_SELECT, name_or_digest)
    if doc is None:
        raise unknown_environment(name_or_digest)
    return from_doc(Environment, doc)
