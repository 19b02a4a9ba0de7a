"""What every test shares: the anyio backend."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
