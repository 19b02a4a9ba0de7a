"""The HTTP of a node: plain ASGI, since every millisecond here is one of every command.

Rule 1: nothing is done without the node's token.
Rule 2: no file is ever whole in memory: pieces go from the request to the door and from the door to the answer.
Rule 3: a body that was cut off is an error of whoever reads it: half a file never takes the place of a whole one.
Rule 4: an answer that cannot be finished is broken off, so that nobody takes it for whole; a stream of lines says why.
"""

import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import anyio
import orjson
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from outlive.api.errors import to_answer
from outlive.base import (
    EffectId,
    ExhaustedError,
    InvalidError,
    MachineId,
    NotFoundError,
    OutliveError,
    UnauthenticatedError,
    UnavailableError,
    is_id,
)
from outlive.governance import Answer
from outlive.machine.caller import closing
from outlive.machine.door import ExecRequest, MachineDoor
from outlive.machine.node_wire import (
    JSON_LIMIT,
    STDIN_PIECE_LIMIT,
    effect_line,
    output_line,
    problem_line,
)
from outlive.machine.status import Effect

_JSON = (b"content-type", b"application/json")
_LINES = [(b"content-type", b"application/x-ndjson")]
_BYTES = [(b"content-type", b"application/octet-stream")]

_log = logging.getLogger(__name__)


class _Call(NamedTuple):
    """One request about one generation of one machine."""

    machine: MachineId
    generation: int
    rest: tuple[str, ...]  # of the path
    query: Mapping[str, str]
    receive: Receive
    send: Send


Handler = Callable[[_Call], Awaitable[None]]


class NodeApp:
    """The ASGI application over `door`. It opens nothing."""

    def __init__(self, door: MachineDoor, token: str) -> None:
        self._door = door
        self._expected = f"Bearer {token}".encode()
        self._handlers: dict[tuple[str, str], Handler] = {
            ("POST", "exec"): self._exec,
            ("POST", "follow"): self._follow,
            ("GET", "effects"): self._effect,
            ("POST", "effects"): self._control,
            ("GET", "stat"): self._stat,
            ("GET", "list"): self._list,
            ("GET", "file"): self._read,
            ("PUT", "file"): self._write,
            ("DELETE", "file"): self._delete,
            ("GET", "processes"): self._processes,
            ("GET", "ports"): self._ports,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_started = False

        async def watch(message: Any) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            self._check_token(scope)
            handler, call = self._find(scope, receive, watch)
            await handler(call)
        except OutliveError as error:
            if is_started:
                # Left unfinished on purpose: the server closes the connection, and the caller knows.
                _log.warning("an answer was broken off: %s", error.message, extra={"code": error.code})
                return
            await _answer(send, to_answer(error))

    def _check_token(self, scope: Scope) -> None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or not hmac.compare_digest(given[0], self._expected):
            raise UnauthenticatedError("node.token", "This is not the token of this node.")

    def _find(self, scope: Scope, receive: Receive, send: Send) -> tuple[Handler, _Call]:
        parts = scope["path"].split("/")
        if len(parts) < 5 or parts[:2] != ["", "machines"]:
            raise NotFoundError("route.not_found", "There is nothing at this path.")
        machine, generation, name = parts[2], parts[3], parts[4]
        handler = self._handlers.get((scope["method"], name))
        if handler is None or not is_id(machine, "mach") or not (generation.isascii() and generation.isdigit()):
            raise NotFoundError("route.not_found", "There is nothing at this path.")
        return handler, _Call(
            MachineId(machine), int(generation), tuple(parts[5:]), _query(scope["query_string"]), receive, send
        )

    # ── commands ──

    async def _exec(self, call: _Call) -> None:
        effect = await self._door.exec(call.machine, call.generation, await _exec_request(call))
        await _send_json(call.send, effect.model_dump_json().encode())

    async def _follow(self, call: _Call) -> None:
        request = await _exec_request(call)
        is_started = False

        async def say(line: bytes, *, is_last: bool = False) -> None:
            nonlocal is_started
            if not is_started:  # with the first line: until then a refusal is an answer of its own
                await call.send({"type": "http.response.start", "status": 200, "headers": _LINES})
                is_started = True
            await call.send({"type": "http.response.body", "body": line, "more_body": not is_last})

        follow = self._door.follow(call.machine, call.generation, request)
        async with closing(follow) as pieces, _while_there(call.receive):
            try:
                async for piece in pieces:
                    is_last = isinstance(piece, Effect)
                    await say(effect_line(piece) if isinstance(piece, Effect) else output_line(piece), is_last=is_last)
            except OutliveError as error:
                if not is_started:
                    raise
                await say(problem_line(to_answer(error).body), is_last=True)

    async def _effect(self, call: _Call) -> None:
        effect = await self._door.effect(call.machine, call.generation, _effect_id(call))
        await _send_json(call.send, effect.model_dump_json().encode())

    async def _control(self, call: _Call) -> None:
        effect = _effect_id(call)
        match call.rest[1:]:
            case ("signal",):
                number = _number(call.query, "number")
                await self._door.signal(call.machine, call.generation, effect, number)
                await _send_json(call.send, b"{}")
            case ("stdin",):
                data = await _read_whole(call.receive, STDIN_PIECE_LIMIT)
                is_end = call.query.get("end") == "1"
                offset = _number(call.query, "offset") if "offset" in call.query else None
                taken = await self._door.write_stdin(
                    call.machine, call.generation, effect, data, end=is_end, offset=offset
                )
                await _send_json(call.send, orjson.dumps({"offset": taken}))
            case _:
                raise NotFoundError("route.not_found", "There is nothing at this path.")

    # ── files ──

    async def _stat(self, call: _Call) -> None:
        entry = await self._door.stat_file(call.machine, call.generation, _path(call))
        await _send_json(call.send, entry.model_dump_json().encode())

    async def _list(self, call: _Call) -> None:
        entries = await self._door.list_files(call.machine, call.generation, _path(call))
        await _send_json(call.send, b"[" + b",".join(entry.model_dump_json().encode() for entry in entries) + b"]")

    async def _read(self, call: _Call) -> None:
        offset = _number(call.query, "offset", 0)
        limit = _number(call.query, "limit") if "limit" in call.query else None
        reading = self._door.read_file(call.machine, call.generation, _path(call), offset=offset, limit=limit)
        async with reading as pieces, _while_there(call.receive):
            await call.send({"type": "http.response.start", "status": 200, "headers": _BYTES})
            async for piece in pieces:
                await call.send({"type": "http.response.body", "body": piece, "more_body": True})
            await call.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, call: _Call) -> None:
        mode = _number(call.query, "mode") if "mode" in call.query else None
        written = await self._door.write_file(
            call.machine, call.generation, _path(call), _pieces(call.receive), mode=mode
        )
        await _send_json(call.send, orjson.dumps({"size": written}))

    async def _delete(self, call: _Call) -> None:
        is_recursive = call.query.get("recursive") == "1"
        await self._door.delete_file(call.machine, call.generation, _path(call), recursive=is_recursive)
        await _send_json(call.send, b"{}")

    # ── what runs, what listens ──

    async def _processes(self, call: _Call) -> None:
        entries = await self._door.processes(call.machine, call.generation)
        await _send_json(call.send, b"[" + b",".join(entry.model_dump_json().encode() for entry in entries) + b"]")

    async def _ports(self, call: _Call) -> None:
        await _send_json(call.send, orjson.dumps(list(await self._door.ports(call.machine, call.generation))))


# ── requests ──


def _query(raw: bytes) -> dict[str, str]:
    try:
        given = parse_qs(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
    except ValueError:
        raise InvalidError("request.malformed", "The query cannot be read.") from None
    return {name: values[-1] for name, values in given.items()}


def _number(query: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = query.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidError("request.invalid", f"{name} is not a number.")
    return int(text)


def _path(call: _Call) -> str:
    path = call.query.get("path", "")
    if not path.startswith("/") or "\0" in path:
        raise InvalidError("file.path", "A path in a machine is absolute and holds no NUL.")
    return path


def _effect_id(call: _Call) -> EffectId:
    if not call.rest:
        raise NotFoundError("route.not_found", "There is nothing at this path.")
    return EffectId(call.rest[0])


async def _exec_request(call: _Call) -> ExecRequest:
    raw = await _read_whole(call.receive, JSON_LIMIT)
    try:
        return ExecRequest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise InvalidError("request.invalid", f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


async def _read_whole(receive: Receive, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in _pieces(receive):
        size += len(piece)
        if size > limit:
            raise ExhaustedError("request.too_large", f"A body may have {limit} bytes here.", limit=limit)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise UnavailableError("request.cut_off", "The request ended before its body did.")
        if body := message.get("body", b""):
            yield body
        if not message.get("more_body", False):
            return


@asynccontextmanager
async def _while_there(receive: Receive) -> AsyncIterator[None]:
    """What is inside is cancelled when the caller leaves. Only after the body was read."""
    failed: OutliveError | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_when_left, receive, group.cancel_scope)
        try:
            yield
        except OutliveError as error:
            failed = error
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed


async def _cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


# ── answers ──


async def _send_json(send: Send, body: bytes) -> None:
    headers = [_JSON, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _answer(send: Send, answer: Answer) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
