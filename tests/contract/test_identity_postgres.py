"""Principals in PostgreSQL keep what every store of them promises."""

from collections.abc import AsyncIterator

import pytest

from outlive.base import SystemClock
from outlive.governance.backends.postgres import PostgresPrincipals, postgres_migrations
from outlive.governance.identity import Principals
from outlive.storage.migrate import migrate_postgres
from outlive.storage.postgres import PostgresDatabase, open_postgres
from outlive.testing.identity import PrincipalsContract

pytestmark = pytest.mark.anyio


class TestPostgresPrincipals(PrincipalsContract):
    database: PostgresDatabase

    @pytest.fixture
    async def principals(self, postgres_dsn: str) -> AsyncIterator[Principals]:
        async with open_postgres(postgres_dsn) as database:
            await migrate_postgres(database, [postgres_migrations()])
            self.database = database
            yield PostgresPrincipals(database, SystemClock())

    async def stored_bytes(self) -> bytes:
        rows = await self.database.run(lambda connection: connection.fetch("SELECT hash, principal FROM tokens"))
        assert rows
        return b"".join(row["hash"] + row["principal"].encode() for row in rows)
