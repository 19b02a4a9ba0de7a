"""A stack as a platform team makes it: processes on hosts of their own, one Temporal, one database, one bucket, and no
supervisor. Each host has a home; nodes serve over TLS. Whatever was started here is ended by `close`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home, Result
from outlive.processes.temporal_server import choose_port, is_listening

START_WITHIN_S = 90.0
END_WITHIN_S = 20.0


class Answer(NamedTuple):
    status: int
    body: Any


class Host:
    """One host and the one process of the stack on it."""

    def __init__(self, path: Path, role: str, said_when_ready: str, **environment: str) -> None:
        self.home = Home(path, **environment)
        self.role = role
        self._said_when_ready = said_when_ready
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def node_path(self) -> Path:
        return self.home.path / "node"

    @property
    def log(self) -> str:
        """What the present process has said."""
        return self._log_path.read_text(errors="replace")

    @property
    def _log_path(self) -> Path:
        return self.home.path.with_name(f"{self.home.path.name}-{self._starts}.log")

    def start(self) -> None:
        """Returns at once; `wait_ready` waits."""
        self._starts += 1
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*COMMAND, self.role],
                env=self.home.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> None:
        def is_ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log[-4000:]
            return self._said_when_ready in self.log

        eventually_sync(is_ready, START_WITHIN_S, every_s=0.05)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(END_WITHIN_S)
        self._process = None
        return code

    def run(self, *arguments: str) -> Result:
        return self.home.run(*arguments)

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        """To the API on this host. A refusal is an answer too."""
        try:
            return Answer(200, self.home.call(method, path, body))
        except urllib.error.HTTPError as error:
            return Answer(error.code, json.loads("".join(error.__notes__)))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.home.end_sandboxes()


@contextmanager
def temporal_server(folder: Path) -> Iterator[str]:
    """The address of a Temporal server of its own."""
    port = choose_port(0)
    alive, ends_when_closed = os.pipe()
    module = [sys.executable, "-m", "outlive.processes.temporal_server"]
    try:
        with subprocess.Popen([*module, str(folder), str(port), str(alive)], pass_fds=[alive]) as server:
            try:
                eventually_sync(lambda: is_listening(port) or server.poll() is not None, START_WITHIN_S, every_s=0.05)
                assert server.poll() is None
                yield f"127.0.0.1:{port}"
            finally:
                server.kill()
    finally:
        os.close(alive)
        os.close(ends_when_closed)


def two_free_ports() -> int:
    """A port that is free, as the one after it is: a node takes both."""
    for _ in range(100):
        port = choose_port(0)
        with closing(socket.socket()) as trial:
            if port < 65_535 and trial.connect_ex(("127.0.0.1", port + 1)) != 0:
                return port
    raise AssertionError("no two free ports beside each other")
