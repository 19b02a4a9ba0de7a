"""Races in SQLite keep what every store of them promises."""

from pathlib import Path

import pytest

from outlive.testing.races import RaceRecordsContract
from services.sqlite import SqlitePlace

pytestmark = pytest.mark.anyio


class TestSqliteRaces(RaceRecordsContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path / "outlive.db")
