"""What a terminal has shown and what happened in it: screen, output, account, recording. Reading wakes no machine."""

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from outlive.api.openapi import problems
from outlive.api.parts import machines_of, terminals_of
from outlive.api.routes.terminals import TerminalInPath, check_observes, terminal_id
from outlive.api.shapes import NoQuery
from outlive.api.terminal_recorded import screen_of
from outlive.api.terminal_shapes import ScreenQuery, SpanQuery
from outlive.base import OutliveError
from outlive.machine.caller import closing
from outlive.machine.terminal.account import Account, Accounting
from outlive.machine.terminal.asciicast import MEDIA_TYPE, Asciicast
from outlive.machine.terminal.recording import Gap, Piece
from outlive.machine.terminal.status import Terminal

router = APIRouter(prefix="/v1")

FLUSH_WITHIN_S = 10.0  # a node that is slower is not waited for: what is in the object store is an answer too

_CHUNK = 64 * 1024

# What a machine printed is anybody's: no browser makes a page of it.
_INERT = {"x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'; sandbox"}
_RAW = {"type": "string", "format": "binary"}


async def _flushed(request: Request, terminal: str) -> Terminal:
    """The record, with all that was printed until now in the object store, if its node can be asked."""
    check_observes(request)
    terminals = terminals_of(request)
    record = await terminals.records.get(terminal_id(terminal))
    if not record.is_open:
        return record
    machine = await machines_of(request).keeper.get(record.machine)
    if machine.state not in ("running", "paused"):
        return record
    try:
        with anyio.fail_after(FLUSH_WITHIN_S):
            return await terminals.door.flush(machine.id, machine.generation, record.id)
    except (OutliveError, TimeoutError):
        return await terminals.records.get(record.id)


@router.get(
    "/terminals/{terminal}/screen",
    response_class=Response,
    responses=problems(404)
    | {200: {"description": "The screen", "content": {"text/plain": {}, "application/octet-stream": {}}}},
)
async def show_screen(request: Request, terminal: TerminalInPath, query: Annotated[ScreenQuery, Query()]) -> Response:
    """What the terminal shows now: as text, or (`vt`) as bytes that draw it on a fresh terminal of its size."""
    record = await _flushed(request, terminal)
    shown = await screen_of(terminals_of(request), record, query.format)
    headers = {
        **_INERT,
        "outlive-offset": str(record.recorded_to),
        "outlive-cols": str(shown.cols),
        "outlive-rows": str(shown.rows),
    }
    media_type = "application/octet-stream" if query.format == "vt" else "text/plain; charset=utf-8"
    return Response(shown.content, media_type=media_type, headers=headers)


@router.get(
    "/terminals/{terminal}/output",
    response_class=Response,
    responses=problems(404)
    | {200: {"description": "Bytes", "content": {"application/octet-stream": {"schema": _RAW}}}},
)
async def read_output(request: Request, terminal: TerminalInPath, query: Annotated[SpanQuery, Query()]) -> Response:
    """What it printed, unaltered. `Outlive-Offset` is the place of the first byte: later than asked for if what is
    before it is gone. The answer ends where bytes are missing; ask again from there until `Outlive-End`."""
    record = await _flushed(request, terminal)
    end = record.recorded_to if query.end is None else min(query.end, record.recorded_to)
    pieces = terminals_of(request).recordings.read_output(record, query.start, end)
    first = await anext(pieces, None)
    while isinstance(first, Gap):
        first = await anext(pieces, None)
    headers = {
        **_INERT,
        "outlive-offset": str(max(query.start, end) if first is None else first.offset),
        "outlive-end": str(record.recorded_to),
    }
    return StreamingResponse(_run(first, pieces), media_type="application/octet-stream", headers=headers)


async def _run(first: Piece | None, pieces: AsyncIterator[Piece | Gap]) -> AsyncIterator[bytes]:
    """Bytes without a hole."""
    async with closing(pieces):
        if first is None:
            return
        yield first.data
        async for piece in pieces:
            if isinstance(piece, Gap):
                return
            yield piece.data


@router.get("/terminals/{terminal}/account", response_model=Account, responses=problems(404))
async def give_account(request: Request, terminal: TerminalInPath, query: Annotated[SpanQuery, Query()]) -> Response:
    """What happened between two offsets, as one piece: the text that was printed, what was typed and by whom, who held
    the lease, which commands ran. Of too much the newest is told."""
    record = await _flushed(request, terminal)
    accounting = Accounting(query.start)
    async with closing(terminals_of(request).recordings.read_records(record, query.start, query.end)) as happened:
        async for each in happened:
            accounting.take(each)
    body = accounting.account().model_dump_json(by_alias=True)
    return Response(body, media_type="application/json", headers=_INERT)


@router.get(
    "/terminals/{terminal}/recording",
    response_class=Response,
    responses=problems(404) | {200: {"description": "asciicast v3", "content": {MEDIA_TYPE: {"schema": _RAW}}}},
)
async def read_recording(request: Request, terminal: TerminalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """All of it as asciicast v3, with what was typed and by whom."""
    record = await _flushed(request, terminal)
    lines = _cast(request, record)
    first = await anext(lines)  # what is wrong with it is a problem as long as nothing was answered
    return StreamingResponse(_all(first, lines), media_type=MEDIA_TYPE, headers=_INERT)


async def _cast(request: Request, record: Terminal) -> AsyncIterator[bytes]:
    cast = Asciicast(record.cols, record.rows, title=record.title, command=record.command)
    waiting: list[bytes] = []
    size = 0
    async with closing(terminals_of(request).recordings.read_records(record)) as happened:
        async for each in happened:
            for line in cast.lines(each):
                waiting.append(line)
                size += len(line)
            if size >= _CHUNK:
                yield b"".join(waiting)
                waiting, size = [], 0
    yield b"".join([*waiting, *cast.finish(record.created_at)])


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with closing(rest):
        yield first
        async for each in rest:
            yield each
