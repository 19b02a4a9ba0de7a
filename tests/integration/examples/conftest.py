"""One stack with machines for all examples, with a provider that says what each needs said."""

from collections.abc import Iterator

import pytest

from integration.stack.homes import Home
from outlive.testing.pretend_provider import provider_process


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with provider_process() as provider:
        path = tmp_path_factory.mktemp("examples") / "home"
        home = Home(path, OUTLIVE_MACHINES__ENABLED="on", **provider.environment())
        try:
            home.up()
            yield home
        finally:
            home.stop()
            home.end_sandboxes()
