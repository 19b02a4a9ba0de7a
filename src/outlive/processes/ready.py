"""How a process tells its supervisor that it is ready: one byte on a pipe, once. The end of the pipe without it means
that it will never be.
"""

import os
from contextlib import suppress

import anyio


class ReadyPipe:
    """The supervisor's side. The write end is passed on by number; our own copy is closed after the start."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()

    @property
    def write_fd(self) -> int:
        return self._write_fd

    def passed_on(self) -> None:
        """The child has its end: from now on the pipe ends with the child."""
        if self._write_fd >= 0:
            os.close(self._write_fd)
            self._write_fd = -1

    async def wait(self) -> bool:
        """Whether the process is ready: True when it says so, False when it ended without."""
        await anyio.wait_readable(self._read_fd)
        return os.read(self._read_fd, 1) != b""

    def close(self) -> None:
        self.passed_on()
        os.close(self._read_fd)


def tell_ready(ready_fd: int | None) -> None:
    """The process's side: say it. Without a supervisor there is nobody to tell."""
    if ready_fd is None:
        return
    with suppress(OSError):  # it is gone; the lifeline says so too
        os.write(ready_fd, b"\n")
    os.close(ready_fd)
