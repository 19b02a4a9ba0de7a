"""The event log in PostgreSQL keeps what every event log promises."""

import pytest

from outlive.testing.event_log import EventLogContract
from services.postgres import PostgresPlace, PostgresServer

pytestmark = pytest.mark.anyio


class TestPostgresEventLog(EventLogContract):
    @pytest.fixture
    def place(self, postgres_server: PostgresServer, postgres_dsn: str) -> PostgresPlace:
        return PostgresPlace(postgres_server, postgres_dsn)
