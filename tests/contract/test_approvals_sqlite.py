"""Approvals in SQLite keep what approvals promise."""

from pathlib import Path

import pytest

from outlive.testing.approvals import ApprovalsContract
from services.sqlite import SqlitePlace

pytestmark = pytest.mark.anyio


class TestSqliteApprovals(ApprovalsContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path / "outlive.db")
