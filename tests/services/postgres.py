"""A private PostgreSQL for tests: the real server from Debian, on a free loopback port, with fsync on."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import anyio.to_thread

from eventually import eventually_sync

PASSWORD = "p@ss:w/o%r?d#[&]='\"$ é"
# The server refuses to run as root.
_USER = "postgres" if os.geteuid() == 0 else None


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    assert found, "PostgreSQL is not installed (Debian package postgresql)"
    return found[-1].parent


class PostgresServer:
    """One cluster, empty but for its superuser. `start` and `stop` may be called again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    def create(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(PASSWORD + "\n")
        if _USER is not None:
            shutil.chown(self._folder, _USER, _USER)
            shutil.chown(password_file, _USER, _USER)
        options = ["--username=outlive", f"--pwfile={password_file}", "--auth=scram-sha-256", "--encoding=UTF8"]
        subprocess.run(
            [_binaries() / "initdb", f"--pgdata={self._data}", *options, "--locale=C.UTF-8", "--no-sync"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            user=_USER,
            group=_USER,
        )

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._folder),
            "fsync": "on",
            "shared_buffers": "32MB",
            "max_connections": "60",
            # Left off here, so that a log that does not ask for durability itself is found out.
            "synchronous_commit": "off",
        }
        settings = [f"--{name}={value}" for name, value in options.items()]
        log = (self._folder / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [_binaries() / "postgres", "-D", self._data, *settings],
                stdout=log,
                stderr=log,
                cwd="/",
                user=_USER,
                group=_USER,
                start_new_session=True,
            )
        eventually_sync(self._is_ready, within_s=60)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "server.log").read_text()
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def stop(self) -> None:
        """At once, as a crash would; what was committed is there after the next `start`."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(timeout=30)
        self._process = None

    def psql(self, sql: str, database: str = "postgres") -> str:
        done = subprocess.run(
            [_binaries() / "psql", "--no-psqlrc", "-qAtc", sql, self.dsn(database)],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def create_database(self, name: str) -> str:
        """A new, empty database; returns its address."""
        self.psql(f"CREATE DATABASE {name}")
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        self.psql(f"DROP DATABASE {name} WITH (FORCE)")

    def dsn(self, database: str) -> str:
        return f"postgresql://outlive:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{database}"


class PostgresPlace:
    """A database of its own for a test, on a server that can be stopped."""

    kind: Literal["sqlite", "postgres"] = "postgres"

    def __init__(self, server: PostgresServer, dsn: str) -> None:
        self.server = server
        self.address = dsn

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Inside, the server is stopped."""
        await anyio.to_thread.run_sync(self.server.stop)
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(self.server.start)


@contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """A server that is gone, with its files, when the context ends."""
    folder = Path(tempfile.mkdtemp(prefix="outlive-postgres-"))  # short: the path of a unix socket is bounded
    server = PostgresServer(folder)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
