"""The machine's only way out: a port on its loopback, each of whose connections goes to the host's egress socket.

Every connection that is open spoils a checkpoint, so they are closed before one, and none is made until the host has
said welcome again.
"""

import socket

from outlive.guest.complaints import complain
from outlive.guest.loop import Loop
from outlive.guest.splice import SocketSplice

CONNECTION_LIMIT = 256
_NONBLOCKING = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC


class Relay:
    def __init__(self, loop: Loop, port: int, egress: str) -> None:
        self._loop = loop
        self._egress = egress
        self._splices: set[SocketSplice] = set()
        self.is_open = False
        self._listener: socket.socket | None = None
        if port:
            self._listen(port)

    @property
    def connections(self) -> int:
        return len(self._splices)

    def _listen(self, port: int) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | _NONBLOCKING)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
        except OSError as error:  # the machine is of use without a way out, too
            complain(f"no relay on port {port}: {error}")
            listener.close()
            return
        self._listener = listener
        self._loop.watch(listener.fileno(), read=self._accept)

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        if not self.is_open or len(self._splices) >= CONNECTION_LIMIT:
            connection.close()
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        out = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | _NONBLOCKING)
        if out.connect_ex(self._egress):
            out.close()
            connection.close()
            return
        splice = SocketSplice(self._loop, connection, out, lambda: self._splices.discard(splice))
        self._splices.add(splice)

    def shut(self) -> None:
        self.is_open = False
        for splice in list(self._splices):
            splice.close()
