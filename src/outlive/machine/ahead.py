"""A byte stream of which some bytes were read already: they come first."""

import anyio.abc


class Ahead(anyio.abc.ByteStream):
    def __init__(self, stream: anyio.abc.ByteStream, ahead: bytes) -> None:
        self._stream = stream
        self._ahead = ahead

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        if self._ahead:
            piece, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
            return piece
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()
