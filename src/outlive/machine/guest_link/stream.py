"""One stream at the host's end. What has come and is not yet taken is bounded by the credit that was given."""

from collections.abc import Callable
from typing import Protocol

import anyio

from outlive.base import UnavailableError
from outlive.guest.flow import Flow
from outlive.guest.wire import PAYLOAD_LIMIT, Kind, WireError, encode, encode_credit


class Outlet(Protocol):
    @property
    def has_room(self) -> bool: ...
    async def wait_for_room(self) -> None: ...
    def send_now(self, frame: bytes) -> None: ...


class GuestStream:
    """Bytes to and from the guest. Its owner takes what comes and calls `reset` when it wants no more of it."""

    def __init__(self, identity: int, outlet: Outlet, *, is_reader: bool) -> None:
        self.id = identity
        self._outlet = outlet
        self._is_reader = is_reader
        self._flow = Flow()
        self._came = bytearray()  # one piece, however small the frames: its size is bounded by the credit
        self._changed = anyio.Event()
        self._is_cut = False  # the guest said RESET
        self._is_left = False  # we did
        self.sent = 0  # bytes that are on their way, in order, whatever becomes of the caller
        self.lost: UnavailableError | None = None
        self.on_change: Callable[[], None] | None = None

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        if self.on_change is not None:
            self.on_change()

    # In

    @property
    def is_at_end(self) -> bool:
        """Nothing more will come, and all that came is taken. `lost` says if that was the connection's end."""
        return not self._came and (self._flow.is_ended or self.lost is not None)

    @property
    def has_data(self) -> bool:
        return bool(self._came)

    @property
    def was_cut(self) -> bool:
        """The guest ended it before its end."""
        return self._is_cut

    def take_now(self) -> bytes | None:
        """What has come, if anything has."""
        if not self._came:
            return None
        data = bytes(self._came)
        self._came.clear()
        if (given := self._flow.consume(len(data))) and self.lost is None:
            self._outlet.send_now(encode_credit(self.id, given))
        return data

    async def receive(self) -> bytes | None:
        """The next bytes; None at the end. `machine.guest_away` if the connection broke before it."""
        while True:
            if (data := self.take_now()) is not None:
                return data
            if self._flow.is_ended:
                return None
            if self.lost is not None:
                raise self.lost
            await self._changed.wait()

    # Out

    def send_now(self, data: bytes) -> bool:
        """Send all of it if nothing has to be waited for, or nothing."""
        if self.lost is not None or self._is_cut or self._flow.has_ended or not self._outlet.has_room:
            return False
        if len(data) > min(self._flow.may_send, PAYLOAD_LIMIT):
            return False
        self._send_part(data)
        return True

    async def send(self, data: bytes) -> None:
        """Returns when all of it is on its way: waits for the guest's credit. `unavailable` if it wants no more."""
        view = memoryview(data)
        while view:
            await self._outlet.wait_for_room()
            while not self._flow.may_send and self.lost is None and not self._is_cut:
                await self._changed.wait()
            if self.lost is not None:
                raise self.lost
            if self._is_cut or self._flow.has_ended:
                raise UnavailableError("machine.stream_closed", "The machine takes no more on this stream.")
            part = bytes(view[: min(self._flow.may_send, PAYLOAD_LIMIT)])
            view = view[len(part) :]
            # Nothing is awaited from the check to the wire: a caller that is cut off has sent all of a part or nothing.
            self._send_part(part)

    def _send_part(self, part: bytes) -> None:
        self._flow.send(len(part))
        self.sent += len(part)
        self._outlet.send_now(encode(Kind.DATA, self.id, part))

    def end(self) -> None:
        self._finish(Kind.END)

    def reset(self) -> None:
        """Want no more of it: what still comes is dropped."""
        self._is_left = True
        self._came.clear()
        self._finish(Kind.RESET)

    def _finish(self, kind: Kind) -> None:
        if not self._flow.has_ended:
            self._flow.has_ended = True
            if self.lost is None:
                self._outlet.send_now(encode(kind, self.id))

    # From the channel

    def take_data(self, data: bytes) -> None:
        self._flow.take(len(data))
        if not self._is_left:
            self._came += data
            self._wake()

    def take_credit(self, size: int) -> None:
        self._flow.take_credit(size)
        self._wake()

    def take_end(self, *, is_cut: bool) -> None:
        self._flow.take_end()
        self._is_cut = is_cut
        if is_cut or self._is_reader:
            self._finish(Kind.RESET if is_cut else Kind.END)
        self._wake()

    def take_done(self) -> None:
        if not self._flow.is_over:
            raise WireError("DONE with a stream that is not")

    def lose(self, error: UnavailableError) -> None:
        self.lost = error
        self._wake()
