"""Principals in SQLite keep what every store of them promises."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlive.base import SystemClock
from outlive.governance.backends.sqlite import SqlitePrincipals, sqlite_migrations
from outlive.governance.identity import Principals
from outlive.storage.migrate import migrate_sqlite
from outlive.storage.sqlite import open_sqlite
from outlive.testing.identity import PrincipalsContract

pytestmark = pytest.mark.anyio


class TestSqlitePrincipals(PrincipalsContract):
    home: Path

    @pytest.fixture
    async def principals(self, tmp_path: Path) -> AsyncIterator[Principals]:
        self.home = tmp_path
        async with open_sqlite(tmp_path / "a.db") as database:
            await migrate_sqlite(database, [sqlite_migrations()])
            yield SqlitePrincipals(database, SystemClock())

    async def stored_bytes(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.home.iterdir())
