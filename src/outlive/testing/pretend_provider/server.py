"""The pretend provider: a real HTTP server that speaks the wire protocols of Anthropic and OpenAI.

    POST /v1/messages, /v1/chat/completions    as the providers; what they answer is in `script`
    GET  /admin/calls                          {"items": [...]}: the ledger
    GET  /admin/requests/N                     the body of call N, while it is kept
    POST /admin/troubles {"items": [...]}      troubles for the next calls, whoever makes them (see `Trouble`)
    POST /admin/defaults {"slow_s", "pace_s"}  for answers that say nothing of it

It writes bytes itself (h11 on a socket), since it has to be able to break every rule of HTTP.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import anyio
import anyio.abc
import h11

from outlive.base import Clock, SystemClock
from outlive.testing.pretend_provider import anthropic_wire, openai_wire
from outlive.testing.pretend_provider.frames import Asked, Frame, Wrong
from outlive.testing.pretend_provider.ledger import Call, Ledger
from outlive.testing.pretend_provider.script import Item, Planned, Trouble, plan_answer, trouble_of

BODY_LIMIT = 64 * 1024 * 1024
PING_EVERY_S = 0.1
SILENCE_LIMIT_S = 600.0  # a client that does not leave a stalled answer is left by then
_APIS: dict[str, tuple[str, ModuleType]] = {
    "/v1/messages": ("anthropic", anthropic_wire),
    "/v1/chat/completions": ("openai", openai_wire),
}
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class _Connection:
    """One client: requests in, bytes out."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self.stream = stream
        self.http = h11.Connection(h11.SERVER)

    async def request(self) -> tuple[h11.Request, bytes] | None:
        """The next request, whole; None when there is none."""
        head: h11.Request | None = None
        body = bytearray()
        while len(body) <= BODY_LIMIT:
            event = self.http.next_event()
            match event:
                case h11.NEED_DATA:
                    try:
                        self.http.receive_data(await self.stream.receive())
                    except anyio.EndOfStream:
                        self.http.receive_data(b"")
                case h11.Request():
                    head = event
                case h11.Data():
                    body += event.data
                case h11.EndOfMessage() if head is not None:
                    return head, bytes(body)
                case _:
                    return None
        return None

    async def send(self, event: h11.Event) -> None:
        if data := self.http.send(event):
            await self.stream.send(data)

    async def start(self, status: int, content_type: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        await self.send(h11.Response(status_code=status, headers=[("content-type", content_type), *headers]))

    async def answer(self, status: int, document: Any, headers: tuple[tuple[str, str], ...] = ()) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        await self.start(status, "application/json", (("content-length", str(len(body))), *headers))
        await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())

    async def cut(self) -> None:
        await anyio.aclose_forcefully(self.stream)

    async def wait_until_left(self) -> None:
        """Raises one of `_GONE` when the client goes. What it says meanwhile is its next request, and kept."""
        while True:
            self.http.receive_data(await self.stream.receive())


class PretendProvider:
    """The server in this process. `provider.url` once it runs; `provider.ledger` says what it was asked."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.url = ""
        self.ledger = Ledger()
        self.troubles: list[Trouble] = []
        self.slow_s = 0.0
        self.pace_s = 0.0
        self._clock = clock or SystemClock()

    @property
    def calls(self) -> list[Call]:
        return self.ledger.calls

    def environment(self) -> dict[str, str]:
        """The variables that lead the official SDKs here."""
        return environment_of(self.url)

    async def serve(
        self, port: int = 0, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        async with listener:
            taken = listener.extra_attributes[anyio.abc.SocketAttribute.local_port]()
            self.url = f"http://127.0.0.1:{taken}"
            task_status.started()
            await listener.serve(self._serve_client)

    async def _serve_client(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                connection = _Connection(stream)
                while (request := await connection.request()) is not None:
                    await self._serve_request(connection, *request)
                    if connection.http.our_state is not h11.DONE:
                        return
                    connection.http.start_next_cycle()
            except (*_GONE, h11.ProtocolError):
                return  # a client may go at any time, and with any last word

    async def _serve_request(self, connection: _Connection, head: h11.Request, body: bytes) -> None:
        path = head.target.decode().partition("?")[0]
        if path in _APIS and head.method == b"POST":
            await self._serve_model(connection, path, head, body)
        else:
            await connection.answer(*self._administer(head.method.decode(), path, body))

    def _administer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        match method, path.strip("/").split("/"):
            case "GET", ["admin", "calls"]:
                return 200, {"items": [call.document() for call in self.calls]}
            case "GET", ["admin", "requests", number] if number.isdigit():
                kept = self.ledger.request(int(number))
                return (200, kept) if kept is not None else (404, {"error": {"message": "not kept"}})
            case "POST", ["admin", "troubles"]:
                self.troubles += [_trouble(item) for item in json.loads(body)["items"]]
                return 200, {}
            case "POST", ["admin", "defaults"]:
                defaults = json.loads(body)
                self.slow_s, self.pace_s = defaults.get("slow_s", 0.0), defaults.get("pace_s", 0.0)
                return 200, {}
            case _:
                return 404, {"error": {"type": "not_found_error", "message": f"no such address: {path}"}}

    async def _serve_model(self, connection: _Connection, path: str, head: h11.Request, body: bytes) -> None:
        api, wire = _APIS[path]
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        try:
            document = json.loads(body)
        except ValueError:
            document = {}
        asked: Asked | Wrong = wire.read_request(document, headers)
        model = str(document.get("model", ""))
        answer = plan_answer(asked.items, wire.PREFIX, model) if isinstance(asked, Asked) else Planned()
        step = headers.get("x-outlive-step", "")
        key = f"{api} {step or hashlib.sha256(body).hexdigest()}"
        call = self.ledger.open(api, key, step, model, answer.number, body, self._clock.now().timestamp())
        try:
            if isinstance(asked, Wrong):
                call.outcome = "refused"
                await connection.answer(asked.status, wire.error_body(asked))
            else:
                trouble = self._armed(asked.items) or trouble_of(answer.troubles, call.nth)
                await _Telling(connection, wire, call, self._paced(answer), asked, trouble).tell()
        finally:
            if call.outcome == "under_way":  # this server is being stopped
                call.outcome = "stopped"
            call.ended_at = self._clock.now().timestamp()

    def _paced(self, answer: Planned) -> Planned:
        return replace(answer, slow_s=answer.slow_s or self.slow_s, pace_s=answer.pace_s or self.pace_s)

    def _armed(self, items: tuple[Item, ...]) -> Trouble | None:
        """The first trouble armed from outside that is meant for this conversation; it is used up by being taken."""
        newest = next((item.text for item in reversed(items) if item.role == "user"), "")
        for place, trouble in enumerate(self.troubles):
            if trouble.match in newest:
                if trouble.times > 1:
                    self.troubles[place] = replace(trouble, times=trouble.times - 1)
                else:
                    del self.troubles[place]
                return trouble
        return None


class _Telling:
    """One answer being told, with what goes wrong in it."""

    def __init__(
        self,
        connection: _Connection,
        wire: ModuleType,
        call: Call,
        answer: Planned,
        asked: Asked,
        trouble: Trouble | None,
    ) -> None:
        self._connection = connection
        self._wire = wire
        self._call = call
        self._answer = answer
        self._asked = asked
        self._trouble = trouble

    async def tell(self) -> None:
        """Tell it, unless the client leaves before the end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, tasks.cancel_scope)
            try:
                await self._tell()
            except _GONE:
                self._was_left()
            tasks.cancel_scope.cancel()

    async def _watch(self, scope: anyio.CancelScope) -> None:
        try:
            await self._connection.wait_until_left()
        except _GONE:
            self._was_left()
            scope.cancel()

    def _was_left(self) -> None:
        if self._call.outcome in ("under_way", "stall"):  # else it went because of us
            self._call.outcome = "left"

    async def _tell(self) -> None:
        trouble, connection = self._trouble, self._connection
        await anyio.sleep(self._answer.slow_s)
        if trouble is not None and trouble.kind == "error":
            self._call.outcome = f"error {trouble.status}"
            message = trouble.message or f"Pretend error {trouble.status}"
            wrong = Wrong(trouble.status, trouble.type or "api_error", message, trouble.code or None)
            await connection.answer(trouble.status, self._wire.error_body(wrong), trouble.headers)
            return
        if trouble is not None and trouble.kind == "html":
            self._call.outcome = "html"
            await connection.start(200, "text/html")
            await connection.send(h11.Data(data=b"<html><body>Welcome to the network of this hotel.</body></html>"))
            await connection.send(h11.EndOfMessage())
            return
        await connection.start(200, "text/event-stream")
        frames = self._wire.encode(self._answer, self._asked)
        if trouble is None and not self._answer.pace_s:
            await self._send_at_once([*frames])
            frames = iter(())
        for frame in frames:
            if trouble is not None and frame.is_piece and self._call.pieces >= trouble.after:
                break
            if frame.is_piece and not self._call.pieces:
                await self._ping()
            await self._send(frame)
        else:
            trouble = None
        if trouble is None:
            await connection.send(h11.EndOfMessage())
            self._call.outcome = "answered"
        else:
            await self._make(trouble)

    async def _ping(self) -> None:
        """What a provider sends while a model thinks and says nothing."""
        for _ in range(round(self._answer.pings_s / PING_EVERY_S)):
            await self._send(self._wire.ping())
            await anyio.sleep(PING_EVERY_S)

    async def _send_at_once(self, frames: Sequence[Frame]) -> None:
        """As providers do that have the answer ready: many events in one piece of the stream."""
        await self._connection.send(h11.Data(data=b"".join(frame.data for frame in frames)))
        self._call.pieces += sum(frame.is_piece for frame in frames)

    async def _send(self, frame: Frame) -> None:
        await self._connection.send(h11.Data(data=frame.data))
        if frame.is_piece:
            self._call.pieces += 1
            await anyio.sleep(self._answer.pace_s)

    async def _make(self, trouble: Trouble) -> None:
        """End an answer that has begun in the way that the trouble asks for."""
        self._call.outcome = trouble.kind
        match trouble.kind:
            case "sse-error":
                await self._send(self._wire.error_event(trouble.type, trouble.message))
                await self._connection.send(h11.EndOfMessage())
            case "garbage":
                nonsense = b'event: content_block_delta\ndata: {"type": "content_block_delta", \xff\xfe<<<\n\n'
                await self._connection.send(h11.Data(data=nonsense))
                await self._connection.send(h11.EndOfMessage())
            case "end":
                await self._connection.send(h11.EndOfMessage())
            case "stall":
                await anyio.sleep(SILENCE_LIMIT_S)
            case _:
                await self._connection.cut()


def _trouble(item: dict[str, Any]) -> Trouble:
    known = {field.name for field in fields(Trouble)}
    headers = tuple((str(name), str(value)) for name, value in item.pop("headers", {}).items())
    return Trouble(**{name: value for name, value in item.items() if name in known}, headers=headers)


def environment_of(url: str) -> dict[str, str]:
    """The variables that lead the official SDKs to the provider at `url`."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "pretend-key",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "pretend-key",
    }


@asynccontextmanager
async def pretend_provider(port: int = 0) -> AsyncIterator[PretendProvider]:
    """A provider that runs in this process for as long as the block."""
    provider = PretendProvider()
    async with anyio.create_task_group() as tasks:
        await tasks.start(provider.serve, port)
        try:
            yield provider
        finally:
            tasks.cancel_scope.cancel()
