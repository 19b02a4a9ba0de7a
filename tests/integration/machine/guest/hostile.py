"""A guest that does not keep to the wire: dials a door, says what a test wants, and sees what becomes of it."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outlive.guest.wire import Decoder, Frame, Kind, Words, encode, encode_words, read_words
from outlive.machine.guest_link import SOCKET

HELLO: Words = {
    "version": 1,
    "boot": "0" * 32,
    "machine": "",
    "generation": 0,
    "effects": {"running": 0, "exited": 0},
}


class Hostile:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._decoder = Decoder()
        self._frames: list[Frame] = []

    def say(self, data: bytes) -> None:
        self._connection.sendall(data)

    def hear(self) -> Frame | None:
        """The next frame from the host; None when it has hung up."""
        while not self._frames:
            try:
                data = self._connection.recv(65536)
            except OSError:
                return None
            if not data:
                return None
            self._frames = self._decoder.feed(data)
        return self._frames.pop(0)

    def greet(self) -> None:
        self.say(encode_words(Kind.HELLO, 0, HELLO))
        welcome = self.hear()
        assert welcome is not None
        assert welcome.kind is Kind.WELCOME

    def next_request(self, verb: str) -> tuple[int, Words]:
        """The next request of this kind; others are let pass."""
        while (frame := self.hear()) is not None:
            if frame.kind is Kind.REQUEST and (words := read_words(frame.payload))["do"] == verb:
                return frame.id, words
        raise AssertionError(f"the host hung up before it asked for {verb!r}")

    def answer(self, identity: int, words: Words) -> None:
        self.say(encode_words(Kind.ANSWER, identity, {"ok": words}))

    def data(self, stream: int, data: bytes) -> None:
        self.say(encode(Kind.DATA, stream, data))

    def is_hung_up_on(self) -> bool:
        """Wait for the host to hang up (the socket has a deadline)."""
        while self.hear() is not None:
            pass
        return True


@contextmanager
def hostile_guest(sockets: Path, behave: Callable[[Hostile], None]) -> Iterator[list[BaseException]]:
    """Runs `behave` in a thread over a connection to the door; what it raises is in the list."""
    failed: list[BaseException] = []
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(sockets / SOCKET))

    def run() -> None:
        try:
            behave(Hostile(connection))
        except (OSError, AssertionError) as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed
    finally:
        with connection:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(20)
