"""A connection to a server in a machine, as the byte stream that the rest of the house knows."""

from contextlib import AsyncExitStack

import anyio
import anyio.abc

from outlive.base import OutliveError
from outlive.machine.guest_link import GuestStream


class PortStream(anyio.abc.ByteStream):
    """Holds what must be let go when it is closed."""

    def __init__(self, stream: GuestStream, holding: AsyncExitStack) -> None:
        self._stream = stream
        self._holding = holding
        self._ahead = b""

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        if not self._ahead:
            try:
                data = await self._stream.receive()
            except OutliveError as error:
                raise anyio.BrokenResourceError from error
            if data is None:
                raise anyio.EndOfStream
            self._ahead = data
        given, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
        return given

    async def send(self, item: bytes) -> None:
        try:
            await self._stream.send(item)
        except OutliveError as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        self._stream.end()

    async def aclose(self) -> None:
        await self._holding.aclose()
