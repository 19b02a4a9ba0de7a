"""What has come from one client and is not taken yet: a program may not read for long, and who hangs up meanwhile is
seen to be gone all the same.

Invariant: what waits is bounded by `AHEAD_LIMIT` and one piece; then the client is not read either, and waits itself.
"""

from collections.abc import Iterator, Sequence

import anyio

from outlive.machine.terminal.door import INPUT_LIMIT
from outlive.machine.terminal.frames import Channel, Frame

AHEAD_LIMIT = 1024 * 1024
_FRAME_COST = 64  # a client may send very many empty ones


class TypedAhead:
    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._size = 0
        self._is_over = False
        self._some = anyio.Event()
        self._room = anyio.Event()

    async def put(self, frames: Sequence[Frame]) -> None:
        """Returns when there is room for more."""
        self._frames += frames
        self._size += sum(map(_cost, frames))
        self._some.set()
        while self._size > AHEAD_LIMIT:
            self._room = anyio.Event()
            await self._room.wait()

    def end(self) -> None:
        """Nothing more comes."""
        self._is_over = True
        self._some.set()

    async def take(self) -> list[Frame] | None:
        """All that waits, in order, with what was typed in one go put together; None when there will be no more."""
        while not self._frames:
            if self._is_over:
                return None
            self._some = anyio.Event()
            await self._some.wait()
        taken, self._frames, self._size = self._frames, [], 0
        self._room.set()
        return list(_joined(taken))


def _cost(frame: Frame) -> int:
    return len(frame.payload) + _FRAME_COST


def _joined(came: Sequence[Frame]) -> Iterator[Frame]:
    """What was typed in one go is passed on in one go: keys that come faster than they can be taken wait together."""
    typed = bytearray()
    for frame in came:
        if frame.channel is Channel.INPUT and len(typed) + len(frame.payload) <= INPUT_LIMIT:
            typed += frame.payload
            continue
        if typed:
            yield Frame(Channel.INPUT, bytes(typed))
            typed.clear()
        yield frame
    if typed:
        yield Frame(Channel.INPUT, bytes(typed))
