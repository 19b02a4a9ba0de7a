"""A server that misbehaves as told: a script says the bytes of each answer and the fate of its connection."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
import anyio.abc


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    content: bytes
    then: str = "close"  # close (FIN), reset, hang, or keep


class Scripted:
    def __init__(self, script: Callable[[int, Request], Reply]) -> None:
        self.requests: list[Request] = []
        self.port = 0
        self.open_connections = 0
        self._script = script

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, stream: anyio.abc.SocketStream) -> None:
        self.open_connections += 1
        async with stream:
            try:
                while await self._answer(stream):
                    pass
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass  # the client has left
        self.open_connections -= 1

    async def _answer(self, stream: anyio.abc.SocketStream) -> bool:
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += await stream.receive()
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += await stream.receive()
        method, path, _ = first.split(" ")
        self.requests.append(request := Request(method, path, headers, body))
        reply = self._script(len(self.requests), request)
        if reply.content:
            await stream.send(reply.content)
        if reply.then == "hang":
            await stream.receive()  # until the client has left
        return reply.then == "keep"


@asynccontextmanager
async def scripted(script: Callable[[int, Request], Reply]) -> AsyncIterator[Scripted]:
    server = Scripted(script)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, server.handle)
        yield server
        group.cancel_scope.cancel()


def answer(body: bytes, status: str = "200 OK", type: str = "application/json", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {type}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def problem(status: str, kind: str, code: str, *headers: str) -> bytes:
    body = f'{{"kind": "{kind}", "code": "{code}", "title": "t", "detail": "d"}}'.encode()
    return answer(body, status, "application/problem+json", *headers)


def stream_of(*frames: str) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [frame.encode() for frame in frames]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
