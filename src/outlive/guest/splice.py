"""Carry bytes both ways: between two sockets (the relay), or a socket and a stream (a preview).

Half-close is kept: an end of one direction is passed on, and the other goes on. What is held in between is bounded.
"""

import socket
from collections.abc import Callable
from contextlib import suppress

from outlive.guest.loop import Loop
from outlive.guest.stream import Stream

_HELD = 64 * 1024


class _Half:
    """One direction between two sockets."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.held = bytearray()
        self.has_ended = False  # the source did
        self.is_over = False  # and the target knows

    def read(self) -> None:
        with suppress(BlockingIOError):
            data = self.source.recv(_HELD)
            self.held += data
            self.has_ended = not data

    def write(self) -> None:
        with suppress(BlockingIOError):
            while self.held:
                del self.held[: self.target.send(self.held)]
        if self.has_ended and not self.held and not self.is_over:
            self.is_over = True
            self.target.shutdown(socket.SHUT_WR)


class SocketSplice:
    def __init__(self, loop: Loop, first: socket.socket, second: socket.socket, on_closed: Callable[[], None]) -> None:
        self._loop = loop
        self._halves = (_Half(first, second), _Half(second, first))
        self._on_closed = on_closed
        self.is_open = True
        self._watch()

    def _watch(self) -> None:
        there, back = self._halves
        if there.is_over and back.is_over:
            self.close()
            return
        for out, incoming in ((there, back), (back, there)):
            read = None if out.has_ended or out.held else lambda half=out: self._move(half, half.read)
            write = (lambda half=incoming: self._move(half, half.write)) if incoming.held else None
            self._loop.watch(out.source.fileno(), read=read, write=write)

    def _move(self, half: _Half, step: Callable[[], None]) -> None:
        try:
            step()
            half.write()
        except OSError:
            self.close()
            return
        if self.is_open:
            self._watch()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            for half in self._halves:
                self._loop.forget(half.source.fileno())
                half.source.close()
            self._on_closed()


class StreamSplice:
    """A stream of the host and a connection to a port of this machine."""

    def __init__(self, loop: Loop, stream: Stream, connection: socket.socket, on_closed: Callable[[], None]) -> None:
        self._loop = loop
        self._stream = stream
        self._socket = connection
        self._on_closed = on_closed
        self._held = bytearray()
        self._has_read_all = False
        self._is_last = False
        self.is_open = True
        stream.on_data = self._take
        stream.on_end = self._take_end
        stream.on_room = self._watch
        stream.on_gone = self.close
        self._watch()

    def _watch(self) -> None:
        if self.is_open:
            read = self._read if not self._has_read_all and self._stream.room() else None
            self._loop.watch(self._socket.fileno(), read=read, write=self._write if self._held else None)

    def _read(self) -> None:
        try:
            data = self._socket.recv(self._stream.room() or 1)
        except BlockingIOError:
            return
        except OSError:
            self._break()
            return
        if data:
            self._stream.send(data)
        else:
            self._has_read_all = True
            self._stream.end()
        self._settle()

    def _take(self, data: bytes) -> None:
        self._held += data
        self._write()

    def _take_end(self) -> None:
        self._is_last = True
        self._write()

    def _write(self) -> None:
        try:
            while self._held:
                sent = self._socket.send(self._held)
                del self._held[:sent]
                self._stream.consume(sent)
            if self._is_last:
                self._socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self._break()
            return
        self._settle()

    def _settle(self) -> None:
        if self._has_read_all and self._is_last and not self._held:
            self.close()
        else:
            self._watch()

    def _break(self) -> None:
        self._stream.reset()
        self.close()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._on_closed()
