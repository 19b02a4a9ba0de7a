"""A running API for each test that asks for one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.api.stack import Api, open_api


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    async with open_api(tmp_path) as api:
        yield api
