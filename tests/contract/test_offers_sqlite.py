"""Tools of users in SQLite keep what every registry of them promises."""

from pathlib import Path

import pytest

from outlive.testing.offers import ToolOffersContract
from services.sqlite import SqlitePlace

pytestmark = pytest.mark.anyio


class TestSqliteOffers(ToolOffersContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path / "outlive.db")
