"""Private PostgreSQL and Redis for a benchmark: the starters of the tests; nothing where none is installed."""

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _reach_tests() -> None:
    """The starters live with the tests, whose modules are found by their short names."""
    root = str(Path(__file__).parent.parent / "tests")
    if root not in sys.path:
        sys.path.append(root)


@contextmanager
def private_redis() -> Iterator[str | None]:
    """The address of a Redis."""
    if shutil.which("redis-server") is None:
        yield None
        return
    _reach_tests()
    with importlib.import_module("services.redis").redis_service() as service:
        yield service.url


@contextmanager
def private_postgres(*databases: str) -> Iterator[list[str] | None]:
    """The addresses of these databases on a server of their own."""
    if not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        yield None
        return
    _reach_tests()
    with importlib.import_module("services.postgres").run_postgres() as server:
        yield [server.create_database(name) for name in databases]
