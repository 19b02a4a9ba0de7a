"""Races in PostgreSQL keep what every store of them promises."""

import pytest

from outlive.testing.races import RaceRecordsContract
from services.postgres import PostgresPlace, PostgresServer

pytestmark = pytest.mark.anyio


class TestPostgresRaces(RaceRecordsContract):
    @pytest.fixture
    def place(self, postgres_server: PostgresServer, postgres_dsn: str) -> PostgresPlace:
        return PostgresPlace(postgres_server, postgres_dsn)
