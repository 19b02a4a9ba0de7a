"""A client of a terminal's WebSocket, by somebody else's library, and what it saw."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from integration.api.machines import MachineApi
from integration.api.stack import TOKEN, Api

WITHIN_S = 40.0
INPUT, OUTPUT, FINAL, RESIZE, STATUS, CLOSE = 0, 1, 3, 4, 5, 255


class Attached:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.frames: list[tuple[int, bytes]] = []
        self.drawing = b""
        self.output = b""  # as counted
        self.start: int | None = None
        self.offset: int | None = None
        self.statuses: list[dict[str, Any]] = []
        self.final: dict[str, Any] | None = None
        self._is_drawing = False

    async def next(self) -> tuple[int, bytes]:
        with anyio.fail_after(WITHIN_S):
            message = await self.connection.recv()
        assert isinstance(message, bytes)
        channel, payload = message[0], message[1:]
        self.frames.append((channel, payload))
        if channel == OUTPUT and self._is_drawing:
            self.drawing += payload
        elif channel == OUTPUT:
            assert self.offset is not None
            self.output += payload
            self.offset += len(payload)
        elif channel == FINAL:
            self.final = json.loads(payload)
        elif channel == STATUS:
            self._take(json.loads(payload))
        else:
            raise AssertionError(f"channel {channel} is not for clients")
        return channel, payload

    def _take(self, words: dict[str, Any]) -> None:
        self.statuses.append(words)
        if "offset" in words:
            if self.offset is not None and not self._is_drawing:
                assert words["offset"] >= self.offset, "an offset went back"
            self.offset = words["offset"]
            self.start = self.offset if self.start is None else self.start
            self._is_drawing = words.get("screen") is True

    async def until(self, seen: Callable[[], bool]) -> None:
        while not seen():
            await self.next()

    async def until_output(self, text: bytes) -> None:
        await self.until(lambda: text in self.output)

    async def until_status(self, name: str, value: Any = ...) -> dict[str, Any]:
        """The next status of this name, and of this value if one is given."""
        while True:
            channel, payload = await self.next()
            if channel == STATUS and name in (words := json.loads(payload)) and value in (..., words[name]):
                found: dict[str, Any] = words
                return found

    async def closed(self) -> int:
        """Its close code, after all that came before."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.next()
        assert self.connection.close_code is not None
        return self.connection.close_code

    async def type(self, data: bytes) -> None:
        await self.connection.send(bytes([INPUT]) + data)

    async def resize(self, cols: int, rows: int) -> None:
        await self.connection.send(bytes([RESIZE]) + json.dumps({"Width": cols, "Height": rows}).encode())


def address(api: Api, terminal: str, **query: Any) -> str:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return f"{api.url.replace('http', 'ws', 1)}/v1/terminals/{terminal}/attach{'?' if asked else ''}{asked}"


@asynccontextmanager
async def attached(
    api: Api, terminal: str, *, token: str = TOKEN, protocols: tuple[str, ...] = ("v5.channel.k8s.io",), **query: Any
) -> AsyncIterator[Attached]:
    """`from_`: the offset."""
    if "from_" in query:
        query["from"] = query.pop("from_")
    async with connect(
        address(api, terminal, **query),
        additional_headers={"Authorization": f"Bearer {token}"} if token else {},
        subprotocols=[Subprotocol(each) for each in protocols] or None,
        proxy=None,
        compression=None,
        max_size=None,
        open_timeout=WITHIN_S,
    ) as connection:
        yield Attached(connection)


async def open_terminal(api: MachineApi, machine: str | None = None, **body: Any) -> str:
    machine = machine or await api.create()
    answer = await api.http.post(f"/v1/machines/{machine}/terminals", json=body)
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["id"]
    return made


async def principal(api: Api, name: str, kind: str = "person", **body: Any) -> str:
    """Its token."""
    answer = await api.http.post("/v1/principals", json={"name": name, "kind": kind, **body})
    assert answer.status_code == 201, answer.text
    token: str = answer.json()["token"]
    return token


def handshake(terminal: str, query: str = "", *more: str, token: str = TOKEN) -> bytes:
    """What opens a WebSocket, byte by byte."""
    lines = [
        f"GET /v1/terminals/{terminal}/attach?{query} HTTP/1.1",
        "Host: 127.0.0.1",
        *([f"Authorization: Bearer {token}"] if token else []),
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()
