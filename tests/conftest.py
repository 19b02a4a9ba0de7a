"""What every test shares: the anyio backend, a Hypothesis that does not mind a busy machine, and real services.

There is one PostgreSQL per test process and an empty database for each test that asks.
"""

import gc
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


gc.disable()  # while tests are collected: nothing of that is garbage, and it is looked through for minutes otherwise


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what is dear stay with one process: each would make its own. What takes longest comes first, so
    that no process is left with it at the end. The order among the others stays random."""
    for item in items:
        group = _group_of(item)
        if group is not None and not any(item.iter_markers("xdist_group")):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_longest_s, reverse=True)


def _group_of(item: pytest.Item) -> str | None:
    """The file of those that share a fixture of its module; those of style all read and parse the whole repository."""
    if item.nodeid.startswith("tests/style/"):
        return "style"
    used = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    is_sharing = any(definitions[-1].scope == "module" for definitions in used)  # the last overrides the others
    return re.sub(r"\W", "-", item.nodeid.partition("::")[0]) if is_sharing else None  # as `whole_run` reads it


def _longest_s(item: pytest.Item) -> float:
    """How long a test says that it may take; one of a group brings the others with it."""
    is_grouped = any(item.iter_markers("xdist_group"))
    return max((mark.args[0] for mark in item.iter_markers("timeout")), default=120.0 if is_grouped else 0.0)


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
