"""Real services that contract tests share: one PostgreSQL per test process, an empty database for each test."""

import itertools
from collections.abc import Iterator

import pytest

from services.postgres import PostgresServer, run_postgres

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)
