"""Principals in SQLite keep what every store of them promises."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlive.base import SystemClock, new_principal_id
from outlive.governance.backends.sqlite import SqlitePrincipals, sqlite_migrations
from outlive.governance.identity import ALL_RIGHTS, Principals, hash_token
from outlive.storage.migrate import Migrations, migrate_sqlite
from outlive.storage.sqlite import open_sqlite
from outlive.testing.identity import TOKEN, PrincipalsContract

pytestmark = pytest.mark.anyio


class TestSqlitePrincipals(PrincipalsContract):
    home: Path

    @pytest.fixture
    async def principals(self, tmp_path: Path) -> AsyncIterator[Principals]:
        self.home = tmp_path
        async with open_sqlite(tmp_path / "a.db") as database:
            await migrate_sqlite(database, [sqlite_migrations()])
            yield SqlitePrincipals(database, SystemClock())

    async def test_the_owner_of_a_database_of_before_keeps_its_token_and_may_do_everything(
        self, tmp_path: Path
    ) -> None:
        namespace, items = sqlite_migrations()
        async with open_sqlite(tmp_path / "old.db") as database:
            await migrate_sqlite(database, [Migrations(namespace, items[:1])])
            id = new_principal_id()

            def fill(connection: sqlite3.Connection) -> None:
                connection.execute(
                    "INSERT INTO principals (id, name, kind, is_owner, created_at)"
                    " VALUES (?, 'owner', 'person', 1, '')",
                    (id,),
                )
                connection.execute(
                    "INSERT INTO tokens (hash, principal, created_at) VALUES (?, ?, '')", (hash_token(TOKEN), id)
                )

            await database.write(fill)
            await migrate_sqlite(database, [sqlite_migrations()])
            principals = SqlitePrincipals(database, SystemClock())
            owner = await principals.authenticate(TOKEN)
            assert (owner.id, owner.rights, owner.is_owner) == (id, ALL_RIGHTS, True)
            assert await principals.find("Owner") == owner

    async def stored_bytes(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.home.iterdir())
