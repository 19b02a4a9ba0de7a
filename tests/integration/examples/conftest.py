"""One stack with machines for all examples, with a provider that says what each needs said."""

from collections.abc import Iterator

import pytest

from integration.stack.homes import Home
from outlive.testing.pretend_provider import provider_process


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with provider_process() as provider:
        home = Home(
            tmp_path_factory.mktemp("examples") / "home",
            OUTLIVE_MACHINES__ENABLED="on",
            OUTLIVE_MCP__ALLOWED_HOSTS='["127.0.0.1:*"]',
            **provider.environment(),
        )
        try:
            home.up()
            yield home
        finally:
            home.stop()
            home.end_sandboxes()
