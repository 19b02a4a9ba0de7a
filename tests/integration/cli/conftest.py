"""One running stack for the commands of conversations; what is said there is written by the tests themselves."""

from collections.abc import Iterator

import pytest

from integration.stack.homes import Home
from outlive.processes.temporal_server import choose_port


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("cli") / "home", OUTLIVE_LOOP__ENABLED="false")
    home.up()
    yield home
    home.stop()


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on, and no connection goes out from."""
    return choose_port(0)
