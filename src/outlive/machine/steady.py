"""A stream over a unix socket of which a wait may be cancelled at any moment.

anyio's own leaves an error in the event loop when a wait is cancelled in the moment the socket gets ready. Attachments
are cancelled all the time, and mostly while something comes.
"""

import socket

import anyio
import anyio.abc
import anyio.lowlevel


def steady(stream: anyio.abc.ByteStream) -> anyio.abc.ByteStream:
    """The same connection; `stream` itself if it is of another kind."""
    if stream.extra(anyio.abc.SocketAttribute.family, None) != socket.AF_UNIX:  # noqa: S610  no database is meant
        return stream
    return _Steady(stream, stream.extra(anyio.abc.SocketAttribute.raw_socket))  # noqa: S610


def send_at_once(stream: anyio.abc.ByteStream, data: bytes) -> bytes:
    """What of `data` the other end does not take just now: often nothing, and then no deadline had to be set."""
    return data[stream.send_now(data) :] if isinstance(stream, _Steady) else data


class _Steady(anyio.abc.ByteStream):
    """Reads and writes by itself; all else is the stream's that it is made of."""

    def __init__(self, stream: anyio.abc.ByteStream, raw: socket.socket) -> None:
        raw.setblocking(False)
        self._stream = stream
        self._raw = raw

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._raw.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._raw)
                continue
            except OSError as error:
                raise self._failed() from error
            if not data:
                raise anyio.EndOfStream
            return data

    def send_now(self, data: bytes) -> int:
        try:
            return self._raw.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._failed() from error

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        view = memoryview(item)
        while view:
            try:
                view = view[self._raw.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._raw)
            except OSError as error:
                raise self._failed() from error
        # Others get their turn after it is sent: what is sent is waited for, a key's echo mostly.
        await anyio.lowlevel.cancel_shielded_checkpoint()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        if self._raw.fileno() >= 0:
            anyio.notify_closing(self._raw)
        await self._stream.aclose()

    def _failed(self) -> anyio.ClosedResourceError | anyio.BrokenResourceError:
        return anyio.ClosedResourceError() if self._raw.fileno() < 0 else anyio.BrokenResourceError()
