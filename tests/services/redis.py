"""A Redis of its own for a test: Debian's redis-server on a unix socket in a directory of its own, gone afterwards."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from eventually import eventually_sync


class RedisService:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._socket = directory / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def start(self) -> None:
        """Returns when it answers. Remembers nothing of an earlier life."""
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is missing: install Debian's package redis-server"
        self._socket.unlink(missing_ok=True)
        options = ["--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no"]
        options += ["--dir", str(self._directory), "--daemonize", "no"]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen([program, *options], stdout=log, stderr=log)
        eventually_sync(self._answers)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text()
        return self._socket.exists()

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def redis_service() -> Iterator[RedisService]:
    """A running Redis. Its directory is short-named: the path of a socket has little room."""
    directory = Path(tempfile.mkdtemp(prefix="redis-"))
    service = RedisService(directory)
    try:
        service.start()
        yield service
    finally:
        service.kill()
        shutil.rmtree(directory)
