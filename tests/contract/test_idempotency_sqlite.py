"""Idempotency keys in SQLite keep what every store of them promises."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlive.governance.backends.sqlite import SqliteIdempotencyKeys, sqlite_migrations
from outlive.storage.migrate import migrate_sqlite
from outlive.storage.sqlite import SqliteDatabase, open_sqlite
from outlive.testing.idempotency import HeldClock, IdempotencyContract, KeysPlace

pytestmark = pytest.mark.anyio


class TestSqliteIdempotencyKeys(IdempotencyContract):
    database: SqliteDatabase

    @pytest.fixture
    async def place(self, tmp_path: Path) -> AsyncIterator[KeysPlace]:
        clock = HeldClock()
        async with open_sqlite(tmp_path / "a.db") as database, open_sqlite(tmp_path / "a.db") as other:
            await migrate_sqlite(database, [sqlite_migrations()])
            self.database = database
            yield KeysPlace(SqliteIdempotencyKeys(database, clock), SqliteIdempotencyKeys(other, clock), clock)

    async def count(self, place: KeysPlace) -> int:
        [number] = await self.database.read(
            lambda connection: connection.execute("SELECT count(*) FROM idempotency_keys").fetchone()
        )
        return int(number)
