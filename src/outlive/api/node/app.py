"""The HTTP of a node: plain ASGI, since every millisecond here is one of every command.

Rule 1: nothing is done without the node's token.
Rule 2: no file is ever whole in memory: pieces go from the request to the door and from the door to the answer.
Rule 3: a body that was cut off is an error of whoever reads it: half a file never takes the place of a whole one.
Rule 4: an answer that cannot be finished is broken off, so that nobody takes it for whole; a stream of lines says why.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from outlive.api.errors import to_answer
from outlive.api.node.asgi import (
    Call,
    body_pieces,
    parse_query,
    read_model,
    read_whole,
    send_answer,
    send_json,
    send_lines,
    to_number,
    while_there,
)
from outlive.api.node.terminals import terminal_handlers
from outlive.base import (
    EffectId,
    InvalidError,
    MachineId,
    NotFoundError,
    OutliveError,
    UnauthenticatedError,
    is_id,
)
from outlive.machine.door import ExecRequest, MachineDoor
from outlive.machine.node_wire import (
    STDIN_PIECE_LIMIT,
)
from outlive.machine.terminal.door import TerminalDoor

_JSON = (b"content-type", b"application/json")
_LINES = [(b"content-type", b"application/x-ndjson")]
_BYTES = [(b"content-type", b"application/octet-stream")]

_log = logging.getLogger(__name__)


Handler = Callable[[Call], Awaitable[None]]


class NodeApp:
    """The ASGI application over `door`. It opens nothing."""

    def __init__(self, door: MachineDoor, token: str, terminals: TerminalDoor | None = None) -> None:
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
            **(terminal_handlers(terminals) if terminals is not None else {}),
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
            await send_answer(send, to_answer(error))

    def _check_token(self, scope: Scope) -> None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or not hmac.compare_digest(given[0], self._expected):
            raise UnauthenticatedError("node.token", "This is not the token of this node.")

    def _find(self, scope: Scope, receive: Receive, send: Send) -> tuple[Handler, Call]:
        parts = scope["path"].split("/")
        if len(parts) < 5 or parts[:2] != ["", "machines"]:
            raise NotFoundError("route.not_found", "There is nothing at this path.")
        machine, generation, name = parts[2], parts[3], parts[4]
        handler = self._handlers.get((scope["method"], name))
        if handler is None or not is_id(machine, "mach") or not (generation.isascii() and generation.isdigit()):
            raise NotFoundError("route.not_found", "There is nothing at this path.")
        return handler, Call(
            MachineId(machine), int(generation), tuple(parts[5:]), parse_query(scope["query_string"]), receive, send
        )

    # ── commands ──

    async def _exec(self, call: Call) -> None:
        effect = await self._door.exec(call.machine, call.generation, await read_model(call, ExecRequest))
        await send_json(call.send, effect.model_dump_json().encode())

    async def _follow(self, call: Call) -> None:
        request = await read_model(call, ExecRequest)
        await send_lines(call, self._door.follow(call.machine, call.generation, request))

    async def _effect(self, call: Call) -> None:
        effect = await self._door.effect(call.machine, call.generation, _effect_id(call))
        await send_json(call.send, effect.model_dump_json().encode())

    async def _control(self, call: Call) -> None:
        effect = _effect_id(call)
        match call.rest[1:]:
            case ("signal",):
                number = to_number(call.query, "number")
                await self._door.signal(call.machine, call.generation, effect, number)
                await send_json(call.send, b"{}")
            case ("stdin",):
                data = await read_whole(call.receive, STDIN_PIECE_LIMIT)
                is_end = call.query.get("end") == "1"
                offset = to_number(call.query, "offset") if "offset" in call.query else None
                taken = await self._door.write_stdin(
                    call.machine, call.generation, effect, data, end=is_end, offset=offset
                )
                await send_json(call.send, orjson.dumps({"offset": taken}))
            case _:
                raise NotFoundError("route.not_found", "There is nothing at this path.")

    # ── files ──

    async def _stat(self, call: Call) -> None:
        entry = await self._door.stat_file(call.machine, call.generation, _path(call))
        await send_json(call.send, entry.model_dump_json().encode())

    async def _list(self, call: Call) -> None:
        async with while_there(call.receive):
            entries = await self._door.list_files(call.machine, call.generation, _path(call))
            await send_json(call.send, b"[" + b",".join(entry.model_dump_json().encode() for entry in entries) + b"]")

    async def _read(self, call: Call) -> None:
        offset = to_number(call.query, "offset", 0)
        limit = to_number(call.query, "limit") if "limit" in call.query else None
        reading = self._door.read_file(call.machine, call.generation, _path(call), offset=offset, limit=limit)
        async with reading as pieces, while_there(call.receive):
            await call.send({"type": "http.response.start", "status": 200, "headers": _BYTES})
            async for piece in pieces:
                await call.send({"type": "http.response.body", "body": piece, "more_body": True})
            await call.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, call: Call) -> None:
        mode = to_number(call.query, "mode") if "mode" in call.query else None
        written = await self._door.write_file(
            call.machine, call.generation, _path(call), body_pieces(call.receive), mode=mode
        )
        await send_json(call.send, orjson.dumps({"size": written}))

    async def _delete(self, call: Call) -> None:
        is_recursive = call.query.get("recursive") == "1"
        await self._door.delete_file(call.machine, call.generation, _path(call), recursive=is_recursive)
        await send_json(call.send, b"{}")

    # ── what runs, what listens ──

    async def _processes(self, call: Call) -> None:
        async with while_there(call.receive):
            entries = await self._door.processes(call.machine, call.generation)
            await send_json(call.send, b"[" + b",".join(entry.model_dump_json().encode() for entry in entries) + b"]")

    async def _ports(self, call: Call) -> None:
        await send_json(call.send, orjson.dumps(list(await self._door.ports(call.machine, call.generation))))


def _path(call: Call) -> str:
    path = call.query.get("path", "")
    if not path.startswith("/") or "\0" in path:
        raise InvalidError("file.path", "A path in a machine is absolute and holds no NUL.")
    return path


def _effect_id(call: Call) -> EffectId:
    if not call.rest:
        raise NotFoundError("route.not_found", "There is nothing at this path.")
    return EffectId(call.rest[0])
