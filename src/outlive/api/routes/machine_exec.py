"""Commands in machines: run once, followed live, looked up later; and what runs in a machine now.

The effect id is what makes a command run once. A caller that has none gets one, and should make one: after a lost
connection only the id finds the command again.
"""

import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
import anyio.abc
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlive.api.errors import to_answer, to_response
from outlive.api.machine_shapes import (
    EffectPage,
    EffectShown,
    NewExec,
    NewSignal,
    NewStdin,
    NumberedQuery,
    PortPage,
    ProcessPage,
    StdinTaken,
    effect_json,
)
from outlive.api.once import HEADER, json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.paging import page_of
from outlive.api.parts import MachineParts, machines_of, parts_of, principal_of
from outlive.api.routes.machines import MachineInPath, machine_id
from outlive.api.shapes import NoQuery, ShortNumberedQuery
from outlive.base import (
    ConflictError,
    EffectId,
    MachineId,
    OperationId,
    OutliveError,
    derive,
    new_effect_id,
)
from outlive.governance import Answer
from outlive.machine.caller import closing
from outlive.machine.door import EFFECT_ID_PATTERN, Output
from outlive.machine.status import Effect, Machine

router = APIRouter(prefix="/v1")

LINES = "application/x-ndjson"
_REFUSED_WITHIN_S = 1.0  # what is refused later is told by a line
_HEADERS = [(b"content-type", LINES.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]

EffectInPath = Annotated[str, Path(json_schema_extra={"pattern": EFFECT_ID_PATTERN})]


@router.post(
    "/machines/{machine}/exec",
    response_model=EffectShown,
    responses=problems(404, 408, 409, 413, 415)
    | {200: {"description": "What came of it", "content": {LINES: {"schema": {"type": "string"}}}}},
    openapi_extra=takes(NewExec),
)
async def exec_command(request: Request, machine: MachineInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Run a command, and answer when its first process exits. The same `effect_id` never runs twice and gets the same
    answer. Wakes a hibernated machine. With `Accept: application/x-ndjson` the output comes live, line by line."""
    of = machine_id(machine)
    body = await read_body(request, NewExec)
    machines = machines_of(request)
    if LINES in request.headers.get("accept", ""):
        asked = body.to_request(_effect_of_key(request))
        return ExecStream(machines.caller.follow(of, asked), asked.effect_id, parts_of(request).ping_s)

    async def act(operation: OperationId) -> Answer:
        asked = body.to_request(EffectId(derive("eff", operation)))
        return json_answer(200, effect_json(await machines.caller.exec(of, asked)))

    return await run_once(request, act)


def _effect_of_key(request: Request) -> EffectId:
    """The id of a streamed command that has none: of its idempotency key, if it has that, so that it runs once too."""
    key = request.headers.get(HEADER)
    if key is None:
        return new_effect_id()
    named = f"{principal_of(request).id} {request.url.path} {key}"
    return EffectId("eff_" + hashlib.sha256(named.encode()).hexdigest()[:32])


class ExecStream(Response):
    """A command as lines of JSON: `{stream, offset, data}` (base64) as it prints, and `{result}` or `{problem}` last.
    Empty lines keep the connection alive."""

    def __init__(self, told: AsyncIterator[Output | Effect], effect: EffectId, ping_s: float) -> None:
        super().__init__()
        self._told = told
        self._effect = effect
        self._ping_s = ping_s
        self._failed: OutliveError | None = None
        self._is_sending = anyio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        into, out = anyio.create_memory_object_stream[Output | Effect](0)
        refusal: OutliveError | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when_left, receive, group.cancel_scope)
            group.start_soon(self._listen, into)
            refusal = await self._relay(out, send, group)
            group.cancel_scope.cancel()
        if refusal is not None:
            await to_response(to_answer(refusal))(scope, receive, send)

    async def _listen(self, into: MemoryObjectSendStream[Output | Effect]) -> None:
        """In a task of its own: waiting for the next piece must not be cut short, it would be lost."""
        async with into, closing(self._told) as telling:
            try:
                async for told in telling:
                    await into.send(told)
            except OutliveError as error:
                self._failed = error

    async def _relay(
        self, out: MemoryObjectReceiveStream[Output | Effect], send: Send, group: anyio.abc.TaskGroup
    ) -> OutliveError | None:
        """All of it as lines; or what it was refused with, if that was at once: then there is no answer yet."""
        async with out:
            first: Output | Effect | None = None
            with anyio.move_on_after(_REFUSED_WITHIN_S):
                try:
                    first = await out.receive()
                except anyio.EndOfStream:
                    return self._failed
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._say(send, orjson.dumps({"effect_id": self._effect}))
            group.start_soon(self._ping, send)
            if first is not None:
                await self._say(send, _line(first))
            async for told in out:
                await self._say(send, _line(told))
            if self._failed is not None:
                await self._say(send, b'{"problem":' + to_answer(self._failed).body + b"}")
            async with self._is_sending:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        return None

    async def _say(self, send: Send, line: bytes) -> None:
        async with self._is_sending:
            await send({"type": "http.response.body", "body": line + b"\n", "more_body": True})

    async def _ping(self, send: Send) -> None:
        while True:
            await anyio.sleep(self._ping_s)
            await self._say(send, b"")


def _line(told: Output | Effect) -> bytes:
    if isinstance(told, Effect):
        return orjson.dumps({"result": effect_json(told)})
    return orjson.dumps(
        {"stream": told.stream, "offset": told.offset, "data": base64.b64encode(told.data).decode("ascii")}
    )


async def _cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


# ── effects ──


@router.get("/machines/{machine}/effects", response_model=EffectPage, responses=problems(404))
async def list_effects(request: Request, machine: MachineInPath, query: Annotated[NumberedQuery, Query()]) -> Response:
    """Every command that was begun in it, oldest first."""
    machines, of = machines_of(request), machine_id(machine)
    await machines.records.machines.get(of)
    found = await machines.records.effects.list(of, after=query.cursor, limit=query.limit + 1)
    page = found[: query.limit]
    following = page[-1].n if len(found) > query.limit else None
    return to_response(json_answer(200, {"items": [effect_json(each) for each in page], "next": following}))


@router.get("/machines/{machine}/effects/{effect}", response_model=EffectShown, responses=problems(404))
async def get_effect(
    request: Request, machine: MachineInPath, effect: EffectInPath, _: Annotated[NoQuery, Query()]
) -> Response:
    """What is known of a command. Asking does not wake the machine."""
    found = await machines_of(request).caller.effect(machine_id(machine), EffectId(effect))
    return to_response(json_answer(200, effect_json(found)))


_BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get("/machines/{machine}/effects/{effect}/stdout", response_class=Response, responses=problems(404) | _BYTES)
async def get_stdout(
    request: Request, machine: MachineInPath, effect: EffectInPath, _: Annotated[NoQuery, Query()]
) -> Response:
    """The whole of what a command printed, when `stdout` of its result is only the beginning."""
    found = await machines_of(request).caller.effect(machine_id(machine), EffectId(effect))
    return await _output(request, found.stdout_blob, found.stdout)


@router.get("/machines/{machine}/effects/{effect}/stderr", response_class=Response, responses=problems(404) | _BYTES)
async def get_stderr(
    request: Request, machine: MachineInPath, effect: EffectInPath, _: Annotated[NoQuery, Query()]
) -> Response:
    """The same of `stderr`."""
    found = await machines_of(request).caller.effect(machine_id(machine), EffectId(effect))
    return await _output(request, found.stderr_blob, found.stderr)


async def _output(request: Request, blob: str | None, inline: str) -> Response:
    content = await machines_of(request).read_output(blob) if blob is not None else inline.encode()
    safe = {"x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'; sandbox"}
    return Response(content, media_type="application/octet-stream", headers=safe)


@router.post(
    "/machines/{machine}/effects/{effect}/signal",
    status_code=204,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewSignal),
)
async def signal_effect(
    request: Request, machine: MachineInPath, effect: EffectInPath, _: Annotated[NoQuery, Query()]
) -> Response:
    """Send a signal to the whole process group of a running command."""
    of, to = machine_id(machine), EffectId(effect)
    body = await read_body(request, NewSignal)

    async def act(_: OperationId) -> Answer:
        running = await _running(machines_of(request), of, to)
        await machines_of(request).caller.door.signal(of, running.generation, to, body.signal)
        return Answer(204, (), b"")

    return await run_once(request, act)


@router.post(
    "/machines/{machine}/effects/{effect}/stdin",
    response_model=StdinTaken,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewStdin),
)
async def write_stdin(
    request: Request, machine: MachineInPath, effect: EffectInPath, _: Annotated[NoQuery, Query()]
) -> Response:
    """Type into a command that was started with `background` and without `stdin`. With `offset` it can be repeated."""
    of, to = machine_id(machine), EffectId(effect)
    body = await read_body(request, NewStdin)

    async def act(_: OperationId) -> Answer:
        await _running(machines_of(request), of, to)
        caller = machines_of(request).caller

        async def write(generation: int) -> int:
            return await caller.door.write_stdin(
                of, generation, to, body.text.encode(), end=body.end, offset=body.offset
            )

        # Without an offset a second try could type it twice.
        if body.offset is None:
            taken = await write((await machines_of(request).keeper.ensure_awake(of)).generation)
        else:
            taken = await caller.use(of, write)
        return json_answer(200, {"offset": taken})

    return await run_once(request, act)


async def _running(machines: MachineParts, machine: MachineId, effect: EffectId) -> Machine:
    """The machine, awake, with a command that is not over."""
    known = await machines.caller.effect(machine, effect)
    if known.is_over:
        raise ConflictError("effect.over", f"Effect {effect!r} is over: {known.state}.")
    return await machines.keeper.ensure_awake(machine)


# ── what runs, what listens ──


@router.get("/machines/{machine}/processes", response_model=ProcessPage, responses=problems(404, 409))
async def list_processes(
    request: Request, machine: MachineInPath, query: Annotated[ShortNumberedQuery, Query()]
) -> Response:
    """What runs in it now. Asking does not wake it: 409 when it is not running."""
    up = await _up(machines_of(request), machine_id(machine))
    found = await machines_of(request).caller.door.processes(up.id, up.generation)
    page, following = page_of(found, lambda each: each.pid, after=query.cursor, limit=query.limit)
    return to_response(json_answer(200, {"items": [each.model_dump() for each in page], "next": following}))


@router.get("/machines/{machine}/ports", response_model=PortPage, responses=problems(404, 409))
async def list_ports(
    request: Request, machine: MachineInPath, query: Annotated[ShortNumberedQuery, Query()]
) -> Response:
    """Where something listens in it now. Asking does not wake it: 409 when it is not running."""
    up = await _up(machines_of(request), machine_id(machine))
    found = await machines_of(request).caller.door.ports(up.id, up.generation)
    page, following = page_of(found, lambda each: each, after=query.cursor, limit=query.limit)
    return to_response(json_answer(200, {"items": list(page), "next": following}))


async def _up(machines: MachineParts, machine: MachineId) -> Machine:
    found = await machines.keeper.get(machine)
    if found.state != "running":
        raise ConflictError("machine.not_running", f"Machine {machine!r} is {found.state}: nothing runs in it now.")
    return found
