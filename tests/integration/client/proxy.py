"""A TCP proxy that cuts or stalls connections after so many bytes of the answer. Everything else passes unchanged."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

import anyio
import anyio.abc


class Fate(NamedTuple):
    """What becomes of a connection: after `bytes` of the answer it is cut or stalls; None: nothing happens to it."""

    bytes: int | None
    how: Literal["cut", "stall"] = "cut"


WHOLE = Fate(None)


class Proxy:
    def __init__(self, port: int, fate: Callable[[int], Fate]) -> None:
        self.cuts = 0
        self.stalls = 0
        self.port = 0
        self._to = port
        self._fate = fate
        self._connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, client: anyio.abc.SocketStream) -> None:
        self._connections += 1
        fate = self._fate(self._connections)
        server = await anyio.connect_tcp("127.0.0.1", self._to)
        async with client, server, anyio.create_task_group() as group:
            group.start_soon(self._pass_request, client, server, group.cancel_scope)
            await self._pass_answer(server, client, fate)
            group.cancel_scope.cancel()

    async def _pass_request(
        self, client: anyio.abc.SocketStream, server: anyio.abc.SocketStream, scope: anyio.CancelScope
    ) -> None:
        try:
            async for chunk in client:
                await server.send(chunk)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()  # the client has left

    async def _pass_answer(self, server: anyio.abc.SocketStream, client: anyio.abc.SocketStream, fate: Fate) -> None:
        left = fate.bytes
        try:
            async for chunk in server:
                if left is not None and len(chunk) >= left:
                    await client.send(chunk[:left])
                    if fate.how == "cut":
                        self.cuts += 1
                        return
                    self.stalls += 1
                    await anyio.sleep_forever()
                await client.send(chunk)
                left = left - len(chunk) if left is not None else None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass


@asynccontextmanager
async def open_proxy(port: int, fate: Callable[[int], Fate]) -> AsyncIterator[Proxy]:
    """`fate` gets the number of the connection, from 1."""
    proxy = Proxy(port, fate)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    proxy.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, proxy.handle)
        yield proxy
        group.cancel_scope.cancel()
