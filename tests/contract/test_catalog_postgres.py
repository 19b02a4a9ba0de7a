"""The catalog in PostgreSQL keeps what every catalog promises."""

import pytest

from outlive.testing.catalog import CatalogContract
from services.postgres import PostgresPlace, PostgresServer

pytestmark = pytest.mark.anyio


class TestPostgresCatalog(CatalogContract):
    @pytest.fixture
    def place(self, postgres_server: PostgresServer, postgres_dsn: str) -> PostgresPlace:
        return PostgresPlace(postgres_server, postgres_dsn)
