"""What every test shares: the anyio backend, a Hypothesis that does not mind a busy machine, and real services.

There is one PostgreSQL per test process and an empty database for each test that asks.
"""

import itertools
import re
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, and tests that share a stack stay with one process: each would start its own.

    The order among the others stays random. A test that may take long says so by its timeout.
    """
    items.sort(key=lambda item: -max((mark.args[0] for mark in item.iter_markers("timeout")), default=0))
    for item in items:
        if isinstance(item, pytest.Function) and not any(item.iter_markers("xdist_group")) and _shares(item):
            item.add_marker(pytest.mark.xdist_group(re.sub(r"\W", "-", item.nodeid.partition("::")[0])))


def _shares(item: pytest.Function) -> bool:
    found = item._fixtureinfo.name2fixturedefs.values()
    return any(fixture.scope == "module" for definitions in found for fixture in definitions)


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
