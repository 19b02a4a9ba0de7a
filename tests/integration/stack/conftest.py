"""Homes for stacks: one for each test, or one running stack for the tests of a file that only look."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.stack.homes import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    home.stop()
    home.end_sandboxes()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("running") / "home")
    home.up()
    yield home
    home.stop()
    home.end_sandboxes()
