"""A connection taken over from the HTTP server below: raw bytes from here on, with backpressure both ways.

The server puts `outlive.take_over` into the scope of a request that asks for an upgrade. Whoever calls it has the
connection for itself, and ends it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import anyio
import anyio.abc
import anyio.lowlevel
from starlette.types import Scope

HIGH_WATER = 256 * 1024  # bytes that wait for us; then the sender has to

TakeOver = Callable[[], "RawStream"]


def take_over_of(scope: Scope) -> TakeOver | None:
    """How to take this request's connection over; None if it cannot be."""
    return cast("TakeOver | None", scope.get("outlive.take_over"))


class RawStream(asyncio.Protocol, anyio.abc.ByteStream):
    """The transport's protocol on one side, a stream on the other."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._is_ended = False  # nothing more will come
        self._is_lost = False
        self._has_ended = False  # nothing more may be sent
        self.lost = anyio.Event()
        self._readable = anyio.Event()
        self._writable = anyio.Event()
        self._writable.set()
        transport.set_protocol(self)
        transport.resume_reading()

    # ── what the transport says ──

    def data_received(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER:
            self._transport.pause_reading()
        self._readable.set()

    def eof_received(self) -> bool:
        self._is_ended = True
        self._readable.set()
        return True  # half-close: we may still send

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ended = self._is_lost = True
        self.lost.set()
        self._readable.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable = anyio.Event()

    def resume_writing(self) -> None:
        self._writable.set()

    # ── what we ask ──

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._waiting:
            if self._is_ended:
                raise anyio.EndOfStream
            self._readable = anyio.Event()
            await self._readable.wait()
        piece = self._waiting.popleft()
        if len(piece) > max_bytes:
            self._waiting.appendleft(piece[max_bytes:])
            piece = piece[:max_bytes]
        self._size -= len(piece)
        if self._size <= HIGH_WATER and not self._is_lost:
            self._transport.resume_reading()
        return piece

    def send_now(self, item: bytes) -> bool:
        """Send it. Whether more may follow at once; if not, `drain` waits until then."""
        if self._is_lost or self._has_ended or self._transport.is_closing():
            raise anyio.BrokenResourceError
        self._transport.write(item)
        return self._writable.is_set()

    async def drain(self) -> None:
        await self._writable.wait()

    async def send(self, item: bytes) -> None:
        if not self.send_now(item):
            await self.drain()
        await anyio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._has_ended = True
            self._transport.write_eof()

    @property
    def is_flushed(self) -> bool:
        """Whether all that was sent has been taken by the kernel."""
        return self._is_lost or self._transport.get_write_buffer_size() == 0

    def abort(self) -> None:
        """End it at once, without what still waits to be taken."""
        self._transport.abort()

    async def aclose(self) -> None:
        self._transport.close()
