"""What every test shares: the anyio backend, a Hypothesis that does not mind a busy machine, and real services.

There is one PostgreSQL per test process and an empty database for each test that asks.
"""

import itertools
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from services.postgres import PostgresServer, run_postgres
from services.redis import RedisService, redis_service

# Who starts the tests in the background of a script, or by nohup, hands down to every program of theirs that Ctrl-C and
# the end of a terminal are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

settings.register_profile("outlive", deadline=None, database=None)
settings.load_profile("outlive")

_numbers = itertools.count(1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisService]:
    """A Redis that nobody kills. Tests share it: each has conversations of its own."""
    with redis_service() as service:
        yield service
