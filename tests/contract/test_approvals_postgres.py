"""Approvals in PostgreSQL keep what approvals promise."""

import pytest

from outlive.testing.approvals import ApprovalsContract
from services.postgres import PostgresPlace, PostgresServer

pytestmark = pytest.mark.anyio


class TestPostgresApprovals(ApprovalsContract):
    @pytest.fixture
    def place(self, postgres_server: PostgresServer, postgres_dsn: str) -> PostgresPlace:
        return PostgresPlace(postgres_server, postgres_dsn)
