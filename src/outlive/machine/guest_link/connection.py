"""One accepted socket, for as long as it lasts. Anything that goes wrong with it is one of two things: ended or broken.

Made of `wait_readable` and plain calls: a wait that is cancelled in the moment the socket gets ready leaves nothing
behind. Each call gives others a turn, so that a guest that never stops sending starves nobody.
"""

import socket

import anyio
import anyio.lowlevel

RECEIVE_SIZE = 128 * 1024


class Connection:
    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self._socket = accepted

    async def receive(self) -> bytes:
        """What has come, at least a byte; nothing when the other end has ended."""
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                return self._socket.recv(RECEIVE_SIZE)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)

    def send_now(self, data: bytes) -> int:
        """As much of it as the other end takes at once: how many bytes that was."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    def close(self) -> None:
        self._socket.close()
