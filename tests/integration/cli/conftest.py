"""One running stack for the commands of conversations."""

from collections.abc import Iterator

import pytest

from integration.stack.homes import Home


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("cli") / "home")
    home.up()
    yield home
    home.stop()
