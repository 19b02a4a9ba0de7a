"""A person at a real terminal: a command on a PTY, whose output goes to an emulator that answers as terminals do."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio

from eventually import eventually
from integration.stack.homes import COMMAND
from security.operator_terminal import OperatorTerminal, State

WITHIN_S = 60.0


class Seat:
    def __init__(self, master: int, process: "subprocess.Popen[bytes]", cols: int, rows: int) -> None:
        self._master = master
        self.process = process
        self.screen = OperatorTerminal(cols, rows)
        self.before: State = self.screen.state
        self.modes_before = termios.tcgetattr(master)

    async def watch(self) -> None:
        """What is printed is drawn, and what the terminal answers is typed."""
        while True:
            await anyio.wait_readable(self._master)
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                return
            self.screen.feed(data)
            for answer in self.screen.answers:
                os.write(self._master, answer)

    def type(self, data: bytes) -> None:
        os.write(self._master, data)

    def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    @property
    def title(self) -> str:
        return self.screen.state.title

    async def sees(self, text: str) -> None:
        await eventually(lambda: text in self.screen.text, within_s=WITHIN_S)

    async def reads_title(self, text: str) -> None:
        await eventually(lambda: text in self.title, within_s=WITHIN_S)

    async def left(self) -> int:
        await eventually(lambda: self.process.poll() is not None, within_s=WITHIN_S)
        assert self.process.returncode is not None
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was: raw mode, screen, modes; the title is the emulator's not to keep."""
        modes = termios.tcgetattr(self._master)
        return modes == self.modes_before and self.screen.state._replace(title="") == self.before


def _start(terminal: int, environment: Mapping[str, str], arguments: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )


@asynccontextmanager
async def open_seat(
    environment: Mapping[str, str], *arguments: str, cols: int = 80, rows: int = 24
) -> AsyncIterator[Seat]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
    process = _start(slave, {**os.environ, **environment, "TERM": "xterm-256color"}, arguments)
    seat = Seat(master, process, cols, rows)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(seat.watch)
            yield seat
            group.cancel_scope.cancel()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        os.close(slave)
        os.close(master)
        seat.screen.close()
