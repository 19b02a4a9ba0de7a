import socket

import pytest


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on: bound, and left."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
