import pytest

from outlive.processes.temporal_server import choose_port


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on, and no connection goes out from."""
    return choose_port(0)
