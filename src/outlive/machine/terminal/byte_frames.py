"""Frames of a terminal over a byte stream, each with its length: one end of an attachment (`door.FrameStream`)."""

from collections import deque

import anyio
import anyio.abc

from outlive.base import UnavailableError
from outlive.machine.steady import send_at_once
from outlive.machine.terminal.frames import Channel, Frame, FrameDecoder, encode

SEND_WITHIN_S = 60.0
_CHUNK = 256 * 1024
_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)


class ByteFrames:
    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream
        self._decoder = FrameDecoder()
        self._came: deque[Frame] = deque()

    async def send(self, channel: Channel, payload: bytes) -> None:
        try:
            if rest := send_at_once(self._stream, encode(channel, payload)):
                with anyio.fail_after(SEND_WITHIN_S):
                    await self._stream.send(rest)
        except TimeoutError:
            raise _away("it takes nothing any more") from None
        except _GONE as error:
            raise _away("it hung up") from error

    async def receive(self) -> tuple[Channel, bytes] | None:
        while not self._came:
            try:
                self._came.extend(self._decoder.feed(await self._stream.receive(_CHUNK)))
            except anyio.EndOfStream:
                if self._decoder.is_between:
                    return None
                raise _away("it hung up in the middle of a word") from None
            except _GONE as error:
                raise _away("it hung up") from error
        return self._came.popleft()

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)


def _away(why: str) -> UnavailableError:
    return UnavailableError("node.away", f"The node of this terminal does not answer ({why}); attach again.")
