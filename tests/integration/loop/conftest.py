"""One Temporal server for the tests of a process; a stage for each test, with a home and a provider of its own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from integration.loop.turns import Stage, stage_at, temporal_at
from outlive.testing.pretend_provider import PretendProvider, pretend_provider


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with temporal_at(tmp_path_factory.mktemp("temporal")) as address:
        yield address


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch, anyio_backend: str) -> AsyncIterator[PretendProvider]:
    async with pretend_provider() as provider:
        for name, value in provider.environment().items():
            monkeypatch.setenv(name, value)
        yield provider


@pytest.fixture
async def stage(temporal: str, provider: PretendProvider, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage_at(tmp_path / "home", temporal) as stage:
        yield stage
