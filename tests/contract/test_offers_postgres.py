"""Tools of users in PostgreSQL keep what every registry of them promises."""

import pytest

from outlive.testing.offers import ToolOffersContract
from services.postgres import PostgresPlace, PostgresServer

pytestmark = pytest.mark.anyio


class TestPostgresOffers(ToolOffersContract):
    @pytest.fixture
    def place(self, postgres_server: PostgresServer, postgres_dsn: str) -> PostgresPlace:
        return PostgresPlace(postgres_server, postgres_dsn)
