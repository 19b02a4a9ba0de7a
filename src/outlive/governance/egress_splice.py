"""Bytes between two sockets, both ways, until both ways have ended or nothing has moved for too long.

Rule 1: what was read is written before more is read. No queue: a slow reader slows its writer.
Rule 2: an end travels. When one side has no more to say the other is told so, and may still answer (half-close).
"""

import asyncio
import select
import socket
from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio.lowlevel import checkpoint

_CHUNK = 64 * 1024
_TOUCH_EVERY_S = 1.0


class Tally:
    """How much went which way, as seen from the machine."""

    def __init__(self) -> None:
        self.up = 0
        self.down = 0

    def count_up(self, size: int) -> None:
        self.up += size

    def count_down(self, size: int) -> None:
        self.down += size


class Idle:
    """A deadline that moves along while something happens. Enter `scope` around the work."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._touched = anyio.current_time()
        self.scope = anyio.CancelScope(deadline=self._touched + seconds)

    def touch(self) -> None:
        # Moving a timer costs more than moving a chunk, so it is moved once in a while; short deadlines exactly.
        now = anyio.current_time()
        if now - self._touched > min(_TOUCH_EVERY_S, self._seconds / 10):
            self._touched = now
            self.scope.deadline = now + self._seconds


async def splice(near: socket.socket, far: socket.socket, tally: Tally, idle: Idle) -> None:
    """Both ways at once. `near` is the machine's side."""
    async with anyio.create_task_group() as group:

        async def go_up() -> None:
            await _copy(near, far, tally.count_up, idle)
            if is_gone(near):
                group.cancel_scope.cancel()  # nobody is left to read an answer

        group.start_soon(go_up)
        await _copy(far, near, tally.count_down, idle)


async def _copy(source: socket.socket, sink: socket.socket, count: Callable[[int], None], idle: Idle) -> None:
    loop = asyncio.get_running_loop()
    buffer = memoryview(bytearray(_CHUNK))
    # A reset ends this way only: what the other side still says is carried on.
    with suppress(OSError):
        while size := await loop.sock_recv_into(source, buffer):
            await loop.sock_sendall(sink, buffer[:size])
            count(size)
            idle.touch()
            await checkpoint()  # a socket that always has more must not keep the others from theirs
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
    with suppress(OSError):
        source.shutdown(socket.SHUT_RD)


def is_gone(near: socket.socket) -> bool:
    """Whether the machine's side is closed both ways, and not only done with talking."""
    poll = select.poll()
    poll.register(near, 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))
