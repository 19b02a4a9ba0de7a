"""Blobs over the API, async and sync: bytes under a name that is made of them."""

from urllib.parse import quote

import anyio

from outlive.client.loop import Loop
from outlive.client.transport import Translated, Transport
from outlive.client.wire import garbled

PUT_S = 600.0
ATTEMPT_S = 200.0
SILENCE_S = 60.0


class AsyncBlobs:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def put(self, content: bytes) -> str:
        """Store bytes, up to 64 MiB; returns their name. The same bytes are stored once."""
        answer = await self._transport.call("POST", "/blobs", content, deadline_s=PUT_S, attempt_s=ATTEMPT_S)
        if not isinstance(name := answer.get("blob"), str):
            raise garbled()
        return name

    async def get(self, name: str) -> bytes:
        response = await self._transport.open_stream(f"/blobs/{quote(name, safe='')}", {}, {"Accept": "*/*"}, SILENCE_S)
        try:
            with Translated(self._transport.url):
                return await response.aread()
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()


class Blobs:
    """The same without `async`."""

    def __init__(self, loop: Loop, twin: AsyncBlobs) -> None:
        self._loop = loop
        self._twin = twin

    def put(self, content: bytes) -> str:
        """Store bytes, up to 64 MiB; returns their name. The same bytes are stored once."""
        return self._loop.run(self._twin.put, content)

    def get(self, name: str) -> bytes:
        return self._loop.run(self._twin.get, name)
