from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.loop.tools.workshop import Workshop, open_workshop


@pytest.fixture
async def workshop(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Workshop]:
    async with open_workshop(tmp_path) as workshop:
        yield workshop
