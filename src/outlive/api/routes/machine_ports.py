"""Previews: a server in a machine, seen through the API. HTTP/1.1 and WebSocket, streaming both ways.

Each request has a connection of its own into the machine; bodies pass in pieces, and a slow reader slows its writer.
What may pass is decided in `preview`.
"""

from contextlib import suppress
from typing import Any

import anyio
import anyio.abc
import h11
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from outlive.api.errors import to_answer, to_response
from outlive.api.node.splice import splice
from outlive.api.parts import machines_of, parts_of
from outlive.api.paths import parse_port
from outlive.api.preview import request_headers, response_headers
from outlive.api.raw import take_over_of
from outlive.api.routes.machines import MachineInPath, machine_id
from outlive.base import DeadlineError, InvalidError, OutliveError, UnavailableError

router = APIRouter(prefix="/v1")

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
FIRST_BYTE_S = 60.0
SILENCE_S = 300.0  # of an answer that has begun
HEAD_LIMIT = 64 * 1024
_CHUNK = 64 * 1024
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


@router.api_route("/machines/{machine}/ports/{port}", methods=METHODS, include_in_schema=False)
async def preview_root(request: Request, machine: MachineInPath, port: str) -> Response:
    """With a slash at the end, so that what a page names beside itself is found."""
    parse_port(port)
    query = request.scope["query_string"].decode("latin-1")
    return RedirectResponse(f"{request.url.path}/{'?' if query else ''}{query}", status_code=307)


@router.api_route("/machines/{machine}/ports/{port}/{path:anything}", methods=METHODS, include_in_schema=False)
async def preview(request: Request, machine: MachineInPath, port: str, path: str) -> Response:
    """A server in the machine. Wakes a hibernated machine."""
    of, number = machine_id(machine), parse_port(port)
    prefix = f"/v1/machines/{of}/ports/{number}"
    raw: bytes = request.scope["raw_path"]
    if not raw.startswith(prefix.encode() + b"/"):
        raise InvalidError("port.malformed", "The address before the path is written in another way than usual.")
    caller = machines_of(request).caller
    stream = await caller.use(of, lambda generation: caller.door.connect(of, generation, number))
    query: bytes = request.scope["query_string"]
    target = raw[len(prefix) :] + (b"?" + query if query else b"")
    return _Preview(request, stream, number, prefix, target)


class _Preview(Response):
    """One request and its answer. Owns the connection into the machine."""

    def __init__(self, request: Request, stream: anyio.abc.ByteStream, port: int, prefix: str, target: bytes) -> None:
        super().__init__()
        self._request = request
        self._stream = stream
        self._port = port
        self._prefix = prefix
        self._target = target
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        self._is_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        failed: OutliveError | None = None
        try:
            async with anyio.create_task_group() as group:
                try:
                    if self._asks_for_upgrade:
                        await self._upgrade(scope, receive, send)
                    else:
                        await self._exchange(group, receive, send)
                except OutliveError as error:
                    failed = error
                group.cancel_scope.cancel()
        finally:
            await anyio.aclose_forcefully(self._stream)
        if failed is not None and not self._is_started:
            await to_response(to_answer(failed))(scope, receive, send)

    @property
    def _asks_for_upgrade(self) -> bool:
        return self._request.method == "GET" and self._request.headers.get("upgrade", "").lower() == "websocket"

    async def _ask(self, *, is_upgrade: bool) -> None:
        request = self._request
        client = request.client.host if request.client else None
        told = request_headers(
            request.scope["headers"],
            port=self._port,
            prefix=self._prefix,
            scheme=request.url.scheme,
            client=client,
            is_upgrade=is_upgrade,
        )
        try:
            event = h11.Request(method=request.method, target=self._target, headers=told)
            await self._send(self._protocol.send(event))
        except h11.LocalProtocolError as error:
            raise InvalidError("port.request", f"This cannot be asked of a server in a machine: {error}.") from None

    async def _send(self, data: bytes | None) -> None:
        if data:
            try:
                with anyio.fail_after(SILENCE_S):
                    await self._stream.send(data)
            except TimeoutError:
                raise DeadlineError("port.slow", "The server in the machine takes nothing any more.") from None
            except _GONE:
                raise UnavailableError("port.gone", "The server in the machine hung up.") from None

    async def _next(self, within_s: float) -> Any:
        """The next event of the answer."""
        while True:
            try:
                event = self._protocol.next_event()
                if event is not h11.NEED_DATA:
                    return _bounded(event)
                with anyio.fail_after(within_s):
                    data = await self._stream.receive(_CHUNK)
            except h11.RemoteProtocolError as error:
                raise _garbled(error) from None
            except TimeoutError:
                raise DeadlineError("port.slow", "The server in the machine did not answer in time.") from None
            except _GONE:
                data = b""
            try:
                self._protocol.receive_data(data)
            except h11.RemoteProtocolError as error:
                raise _garbled(error) from None

    # ── HTTP ──

    async def _exchange(self, group: anyio.abc.TaskGroup, receive: Receive, send: Send) -> None:
        await self._ask(is_upgrade=False)
        group.start_soon(self._upload, receive, group.cancel_scope)
        head = await self._next(FIRST_BYTE_S)
        while isinstance(head, h11.InformationalResponse):
            head = await self._next(FIRST_BYTE_S)
        if not isinstance(head, h11.Response):
            raise UnavailableError("port.gone", "The server in the machine hung up without an answer.")
        told = response_headers(head.headers.raw_items(), port=self._port, prefix=self._prefix)
        self._is_started = True
        await send({"type": "http.response.start", "status": head.status_code, "headers": told})
        while isinstance(event := await self._next(SILENCE_S), h11.Data):
            await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        if isinstance(event, h11.EndOfMessage):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _upload(self, receive: Receive, scope: anyio.CancelScope) -> None:
        """The body of the request, as it comes; then watch whether the caller leaves."""
        with suppress(OutliveError, h11.LocalProtocolError):  # the answer says what is wrong, or nothing comes
            is_sending = True
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    scope.cancel()
                    return
                if is_sending and (body := message.get("body", b"")):
                    await self._send(self._protocol.send(h11.Data(data=body)))
                if is_sending and not message.get("more_body", False):
                    is_sending = False
                    await self._send(self._protocol.send(h11.EndOfMessage()))

    # ── WebSocket ──

    async def _upgrade(self, scope: Scope, receive: Receive, send: Send) -> None:
        take_over = take_over_of(scope)
        if take_over is None:
            raise InvalidError("port.no_upgrade", "This connection cannot be upgraded.")
        await self._ask(is_upgrade=True)
        await self._send(self._protocol.send(h11.EndOfMessage()))
        head = await self._next(FIRST_BYTE_S)
        if not isinstance(head, h11.InformationalResponse) or head.status_code != 101:
            raise UnavailableError("port.no_upgrade", "The server in the machine did not upgrade the connection.")
        ahead, _ = self._protocol.trailing_data
        near = take_over()
        self._is_started = True
        async with near:
            told = response_headers(head.headers.raw_items(), port=self._port, prefix=self._prefix)
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in told)
            with suppress(*_GONE):
                await near.send(
                    b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
                    + lines
                    + b"\r\n"
                    + ahead
                )
                async with anyio.create_task_group() as group:
                    group.start_soon(_cancel_when_set, parts_of(self._request).closing, group.cancel_scope)
                    group.start_soon(_cancel_when_set, near.lost, group.cancel_scope)
                    await splice(near, self._stream)
                    group.cancel_scope.cancel()


def _bounded(event: Any) -> Any:
    """h11 bounds what it waits for, not what comes in a few large pieces."""
    if isinstance(event, h11.Response | h11.InformationalResponse):
        size = sum(len(name) + len(value) + 4 for name, value in event.headers.raw_items())
        if size > HEAD_LIMIT:
            raise UnavailableError("port.garbled", "The server in the machine sends too many headers.", size=size)
    return event


def _garbled(error: Exception) -> UnavailableError:
    return UnavailableError("port.garbled", f"What the server in the machine says is not HTTP: {error}.")


async def _cancel_when_set(closing: anyio.Event, scope: anyio.CancelScope) -> None:
    await closing.wait()
    scope.cancel()
