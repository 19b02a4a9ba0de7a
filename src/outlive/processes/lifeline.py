"""The lifeline: a pipe whose write end only the supervisor holds.

However the supervisor ends, kill -9 included, the kernel closes that end, and whoever holds the read end knows.
Nothing is ever written: the only thing to read is the end.
"""

import os

import anyio


class Lifeline:
    """The supervisor's side. Neither end is inherited unless it is passed on by number."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()

    def close(self) -> None:
        os.close(self.read_fd)
        os.close(self._write_fd)


async def wait_for_end(read_fd: int) -> None:
    """Return when the supervisor is gone."""
    while True:
        await anyio.wait_readable(read_fd)
        if os.read(read_fd, 1) == b"":
            return
