"""The catalog in SQLite keeps what every catalog promises."""

from pathlib import Path

import pytest

from outlive.testing.catalog import CatalogContract
from services.sqlite import SqlitePlace

pytestmark = pytest.mark.anyio


class TestSqliteCatalog(CatalogContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path / "outlive.db")
