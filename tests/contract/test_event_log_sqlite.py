"""The event log in SQLite keeps what every event log promises."""

from pathlib import Path

import pytest

from outlive.testing.event_log import EventLogContract
from services.sqlite import SqlitePlace

pytestmark = pytest.mark.anyio


class TestSqliteEventLog(EventLogContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path / "outlive.db")
