"""Idempotency keys in PostgreSQL keep what every store of them promises."""

from collections.abc import AsyncIterator

import pytest

from outlive.governance.backends.postgres import PostgresIdempotencyKeys, postgres_migrations
from outlive.storage.migrate import migrate_postgres
from outlive.storage.postgres import PostgresDatabase, open_postgres
from outlive.testing.idempotency import HeldClock, IdempotencyContract, KeysPlace

pytestmark = pytest.mark.anyio


class TestPostgresIdempotencyKeys(IdempotencyContract):
    database: PostgresDatabase

    @pytest.fixture
    async def place(self, postgres_dsn: str) -> AsyncIterator[KeysPlace]:
        clock = HeldClock()
        async with open_postgres(postgres_dsn) as database, open_postgres(postgres_dsn) as other:
            await migrate_postgres(database, [postgres_migrations()])
            self.database = database
            yield KeysPlace(PostgresIdempotencyKeys(database, clock), PostgresIdempotencyKeys(other, clock), clock)

    async def count(self, place: KeysPlace) -> int:
        number = await self.database.run(
            lambda connection: connection.fetchval("SELECT count(*) FROM idempotency_keys")
        )
        return int(number)
