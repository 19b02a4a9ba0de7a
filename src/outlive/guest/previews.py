"""Connections from the host to ports of this machine: one stream each. Only loopback, which is all there is."""

import errno
import socket
from collections.abc import Callable

from outlive.guest import words as read
from outlive.guest.link import Ask
from outlive.guest.loop import Loop, Timer
from outlive.guest.refusal import RefusalError
from outlive.guest.splice import StreamSplice

_CONNECT_S = 5.0
_PLACES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class Previews:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._open: set[StreamSplice] = set()

    @property
    def connections(self) -> int:
        return len(self._open)

    def verbs(self) -> dict[str, Callable[[Ask], None]]:
        return {"connect": self._connect}

    def _connect(self, ask: Ask) -> None:
        port = read.whole(ask.words, "port")
        if not 0 < port < 65536:
            raise RefusalError("invalid", "bad_request", f"There is no port {port}.")
        _Attempt(self._loop, ask, port, self._splice).begin()

    def _splice(self, ask: Ask, connection: socket.socket) -> None:
        ask.on_withdrawn = None
        splice = StreamSplice(self._loop, ask.streams["connection"], connection, lambda: self._open.discard(splice))
        self._open.add(splice)
        ask.answer({})

    def shut(self) -> None:
        for splice in list(self._open):
            splice.close()


class _Attempt:
    """Try the loopback addresses in turn: programs listen on one or the other."""

    def __init__(self, loop: Loop, ask: Ask, port: int, on_connected: Callable[[Ask, socket.socket], None]) -> None:
        self._loop = loop
        self._ask = ask
        self._port = port
        self._on_connected = on_connected
        self._places = list(_PLACES)
        self._socket: socket.socket | None = None
        self._timer: Timer | None = None

    def begin(self) -> None:
        self._ask.on_withdrawn = self._drop
        self._ask.streams["connection"].on_gone = self._drop
        self._timer = self._loop.after(_CONNECT_S, self._next)
        self._next()

    def _next(self) -> None:
        self._drop()
        while self._places and self._ask.is_open:
            family, address = self._places.pop(0)
            try:
                connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            except OSError:
                continue  # this machine does not know the family
            code = connection.connect_ex((address, self._port))
            if code in (0, errno.EINPROGRESS):
                self._socket = connection
                self._loop.watch(connection.fileno(), write=self._look)
                return
            connection.close()
        if self._timer is not None:
            self._timer.cancel()
        message = f"Nothing listens on port {self._port} of this machine."
        self._ask.refuse(RefusalError("unavailable", "port_closed", message))

    def _look(self) -> None:
        connection = self._socket
        if connection is None:
            return
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._next()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._loop.forget(connection.fileno())
        self._socket = None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._on_connected(self._ask, connection)

    def _drop(self) -> None:
        if self._socket is not None:
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None
