"""One running stack for the commands of conversations; what is said there is written by the tests themselves."""

import socket
from collections.abc import Iterator

import pytest

from integration.stack.homes import Home


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("cli") / "home", OUTLIVE_LOOP__ENABLED="false")
    home.up()
    yield home
    home.stop()


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on: bound, and left."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
