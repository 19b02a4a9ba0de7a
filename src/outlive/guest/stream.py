"""One stream at the guest's end: a flow, and what its owner wants to hear about.

The owner sets the callbacks; `send` takes what there is credit and room for and says how much that was, and
`on_room` says when it is worth trying again. What comes in is given to `on_data`, whose owner says `consume` when it
is used up. Invariant: a stream that its owner has left (`end` and the other end's end, or `reset`) calls nobody.
"""

from collections.abc import Callable
from typing import Protocol

from outlive.guest.flow import Flow
from outlive.guest.wire import PAYLOAD_LIMIT, Kind, encode, encode_credit


class Outbox(Protocol):
    def room(self) -> int: ...
    def write(self, data: bytes) -> None: ...
    def release(self, stream: "Stream") -> None: ...


def _nothing() -> None:
    pass


class Stream:
    def __init__(self, identity: int, outbox: Outbox) -> None:
        self.id = identity
        self._outbox = outbox
        self._flow = Flow()
        self.is_gone = False
        self.on_data: Callable[[bytes], None] = lambda data: self.consume(len(data))
        self.on_end: Callable[[], None] = _nothing  # the host sends no more
        self.on_gone: Callable[[], None] = _nothing  # reset by the host, or the connection is gone
        self.on_room: Callable[[], None] = _nothing

    @property
    def has_ended(self) -> bool:
        return self._flow.has_ended

    def room(self) -> int:
        if self.is_gone or self._flow.has_ended:
            return 0
        return min(self._flow.may_send, self._outbox.room(), PAYLOAD_LIMIT)

    def send(self, data: bytes | memoryview) -> int:
        """Take as much of `data` as there is room for: less than all of it means wait for `on_room`."""
        sent = 0
        while sent < len(data) and (room := self.room()):
            part = bytes(data[sent : sent + room])
            self._flow.send(len(part))
            self._outbox.write(encode(Kind.DATA, self.id, part))
            sent += len(part)
        return sent

    def consume(self, size: int) -> None:
        if not self.is_gone and (given := self._flow.consume(size)):
            self._outbox.write(encode_credit(self.id, given))

    def end(self) -> None:
        self._finish(Kind.END)

    def reset(self) -> None:
        """Leave: nothing more goes out, and what comes in is dropped."""
        self.on_data = lambda data: self.consume(len(data))
        self.on_end = self.on_gone = self.on_room = _nothing
        self._finish(Kind.RESET)

    def _finish(self, kind: Kind) -> None:
        if self.is_gone or self._flow.has_ended:
            return
        self._flow.has_ended = True
        self._outbox.write(encode(kind, self.id))
        self._release_if_over()

    def _release_if_over(self) -> None:
        if self._flow.is_over and not self.is_gone:
            self.is_gone = True
            self._outbox.write(encode(Kind.DONE, self.id))
            self._outbox.release(self)

    def take_data(self, data: bytes) -> None:
        self._flow.take(len(data))
        self.on_data(data)

    def take_credit(self, size: int) -> None:
        self._flow.take_credit(size)
        self.on_room()

    def take_end(self) -> None:
        self._flow.take_end()
        self.on_end()
        self._release_if_over()

    def take_reset(self) -> None:
        self._flow.take_end()
        self.on_gone()
        self.reset()
        self._release_if_over()

    def lose(self) -> None:
        """The connection is gone, and the stream with it."""
        if not self.is_gone:
            self.is_gone = True
            self.on_gone()
