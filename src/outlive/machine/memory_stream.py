"""Two ends of a byte stream in memory: what is sent at one is received at the other, a few pieces on the way."""

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

PIECES = 8


class MemoryEnd(anyio.abc.ByteStream):
    def __init__(self, sending: MemoryObjectSendStream[bytes], receiving: MemoryObjectReceiveStream[bytes]) -> None:
        self._sending = sending
        self._receiving = receiving
        self._ahead = b""

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        data = self._ahead or await self._receiving.receive()
        given, self._ahead = data[:max_bytes], data[max_bytes:]
        return given

    async def send(self, item: bytes) -> None:
        if item:
            await self._sending.send(bytes(item))

    async def send_eof(self) -> None:
        self._sending.close()

    async def aclose(self) -> None:
        self._sending.close()
        self._receiving.close()


def memory_pair() -> tuple[MemoryEnd, MemoryEnd]:
    to_far, at_far = anyio.create_memory_object_stream[bytes](PIECES)
    to_near, at_near = anyio.create_memory_object_stream[bytes](PIECES)
    return MemoryEnd(to_far, at_near), MemoryEnd(to_near, at_far)
