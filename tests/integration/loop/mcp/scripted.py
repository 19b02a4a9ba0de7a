"""An MCP server behind HTTP, byte by byte: it does the handshake, and answers a call with whatever a test says."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

Answer = Callable[[int], bytes]
"""All that is sent for the call with this id, with its head."""

TOOL = {"name": "go", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["x"]}}
SESSION = "Mcp-Session-Id: s\r\n"


def http(body: bytes, kind: str = "application/json", status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return f"{head}{more}\r\n".encode() + body


def rpc(of: int, **what: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": of, **what}).encode()


def said(of: int, text: str, **more: Any) -> bytes:
    return rpc(of, result={"content": [{"type": "text", "text": text}], **more})


class Scripted:
    """`heads` and `asked`: what it was sent. With `holds_on`, who lets go of its session is left waiting."""

    def __init__(self, answer: Answer, *, holds_on: bool = False) -> None:
        self.answer = answer
        self.holds_on = holds_on
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.let_go = anyio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, self._serve)
            port = listener.extra_attributes[anyio.abc.SocketAttribute.local_port]()
            yield f"http://127.0.0.1:{port}/mcp"
            group.cancel_scope.cancel()

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                head, body = await _request(stream)
                self.heads.append(head)
                if head.startswith("DELETE") and self.holds_on:
                    self.let_go.set()
                    await anyio.Event().wait()
                await stream.send(self._answered(head, body))
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return

    def _answered(self, head: str, body: bytes) -> bytes:
        if not head.startswith("POST"):
            return http(b"", status="405 Not Allowed")
        message = json.loads(body)
        method, of = message["method"], message.get("id")
        self.asked.append(method)
        if of is None:
            return http(b"", status="202 Accepted")
        if method == "initialize":
            info = {"name": "scripted", "version": "1"}
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            return http(rpc(of, result=result), more=SESSION)
        if method == "tools/list":
            return http(rpc(of, result={"tools": [TOOL]}))
        if method == "tools/call":
            return self.answer(of)
        return http(rpc(of, error={"code": -32601, "message": "no such method"}))


async def _request(stream: anyio.abc.SocketStream) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    size = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < size:
        body += await stream.receive()
    return head.decode(), body
