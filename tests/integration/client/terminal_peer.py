"""A server that speaks the frames of terminals on real sockets: one terminal, whose output the test writes."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from eventually import eventually

TERMINAL = "term_" + "0" * 32
TOKEN = "secret"


@dataclass
class TerminalPeer:
    """What is printed is kept here; connections come and go, also whole servers."""

    output: bytes = b""
    typed: bytes = b""
    sizes: list[dict[str, int]] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)  # parameters of each attach
    clients: list[str] = field(default_factory=list)
    lease: dict[str, Any] | None = None
    drawing: bytes = b"<screen>"
    early: int = 0  # the server begins so many bytes too early
    refusal: tuple[int, dict[str, Any]] | None = None
    exit: int | None = None
    ended_input: int = 0
    port: int = 0
    _server: Server | None = None
    _connections: set[ServerConnection] = field(default_factory=set)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, port: int = 0) -> None:
        self._server = await serve(
            self._handle, "127.0.0.1", port, process_request=self._check, compression=None, close_timeout=1
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        """As a process that is killed: every connection is cut."""
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def cut(self) -> None:
        for connection in list(self._connections):
            connection.transport.abort()

    async def close_all(self, code: int) -> None:
        for connection in list(self._connections):
            await connection.close(code)

    def print(self, data: bytes) -> None:
        self.output += data
        self._tell()

    def end(self, code: int) -> None:
        self.exit = code
        self._tell()

    async def say(self, **words: Any) -> None:
        for connection in list(self._connections):
            await connection.send(b"\x05" + json.dumps(words).encode())

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _check(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._problem(401, {"kind": "unauthenticated", "code": "token.unknown", "detail": "No."})
        return None if self.refusal is None else self._problem(*self.refusal)

    def _problem(self, status: int, problem: dict[str, Any]) -> Response:
        body = json.dumps(problem).encode()
        headers = Headers({"Content-Type": "application/problem+json", "Content-Length": str(len(body))})
        return Response(status, HTTPStatus(status).phrase, headers, body)

    async def _handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        address = urlsplit(connection.request.path)
        assert address.path == f"/v1/terminals/{TERMINAL}/attach"
        asked = {name: values[0] for name, values in parse_qs(address.query).items()}
        self.asked.append(asked)
        self.clients.append(connection.request.headers.get("User-Agent", ""))
        self._connections.add(connection)
        try:
            with contextlib.suppress(ConnectionClosed):
                async with anyio.create_task_group() as group:
                    group.start_soon(self._hear, connection, group.cancel_scope)
                    await self._speak(connection, asked.get("from"))
                    group.cancel_scope.cancel()
        except* ConnectionClosed:
            pass
        finally:
            self._connections.discard(connection)

    async def _hear(self, connection: ServerConnection, scope: anyio.CancelScope) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                assert isinstance(message, bytes)
                if message[0] == 0:
                    self.typed += message[1:]
                elif message[0] == 4:
                    self.sizes.append(json.loads(message[1:]))
                elif message == b"\xff\x00":
                    self.ended_input += 1
        scope.cancel()  # the client has left

    async def _speak(self, connection: ServerConnection, begin: str | None) -> None:
        words: dict[str, Any] = {"terminal": TERMINAL, "cols": 80, "rows": 24, "lease": self.lease}
        if begin is None:
            at = len(self.output)
            await connection.send(b"\x05" + json.dumps({**words, "offset": at, "screen": True}).encode())
            await connection.send(b"\x01" + self.drawing)
            await connection.send(b"\x05" + json.dumps({"offset": at}).encode())
        else:
            at = max(0, int(begin) - self.early)
            await connection.send(b"\x05" + json.dumps({**words, "offset": at}).encode())
        while True:
            changed = self._changed
            while at < len(self.output):
                piece = self.output[at : at + 4096]
                await connection.send(b"\x01" + piece)
                at += len(piece)
            if self.exit is not None:
                await connection.send(b"\x05" + json.dumps({"exit": self.exit, "signal": None}).encode())
                status: dict[str, Any] = {"metadata": {}, "status": "Success" if self.exit == 0 else "Failure"}
                await connection.send(b"\x03" + json.dumps(status).encode())
                return
            await changed.wait()

    async def attached(self, count: int = 1) -> None:
        await eventually(lambda: len(self.asked) >= count and self.connections > 0, within_s=30)


@contextlib.asynccontextmanager
async def open_terminal_peer() -> AsyncIterator[TerminalPeer]:
    peer = TerminalPeer()
    await peer.start()
    try:
        yield peer
    finally:
        with anyio.CancelScope(shield=True):
            await peer.stop()
