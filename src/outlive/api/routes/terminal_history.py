"""What a terminal has shown and what happened in it: screen, output, account, recording. Reading wakes no machine."""

from collections.abc import AsyncIterator
from typing import Annotated, NamedTuple

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
from outlive.base import InvalidError, OutliveError
from outlive.machine.caller import closing
from outlive.machine.terminal.account import Account, Accounting
from outlive.machine.terminal.asciicast import MEDIA_TYPE, Asciicast
from outlive.machine.terminal.newest import HandedOver
from outlive.machine.terminal.recording import Gap, Piece
from outlive.machine.terminal.status import Terminal

router = APIRouter(prefix="/v1")

NEWEST_WITHIN_S = 10.0  # a node that is slower is not waited for: what is in the object store is an answer too

_CHUNK = 64 * 1024

# What a machine printed is anybody's: no browser makes a page of it.
_INERT = {"x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'; sandbox"}
_RAW = {"type": "string", "format": "binary"}


class _Known(NamedTuple):
    """A terminal up to now, or as far as can be had: `local` is what only its node has."""

    record: Terminal
    local: HandedOver | None = None
    is_newest: bool = True

    @property
    def end(self) -> int:
        return self.record.recorded_to


async def _known(request: Request, terminal: str) -> _Known:
    check_observes(request)
    terminals = terminals_of(request)
    record = await terminals.records.get(terminal_id(terminal))
    if not record.is_open:
        return _Known(record)
    machine = await machines_of(request).keeper.get(record.machine)
    if machine.state not in ("running", "paused"):
        return _Known(record)
    try:
        with anyio.fail_after(NEWEST_WITHIN_S):
            newest = await terminals.door.newest(machine.id, machine.generation, record.id)
    except (OutliveError, TimeoutError):
        return _Known(await terminals.records.get(record.id), is_newest=False)
    return _Known(newest.terminal.model_copy(update={"recorded_to": newest.offset}), HandedOver(newest))


@router.get(
    "/terminals/{terminal}/screen",
    response_class=Response,
    responses=problems(404)
    | {200: {"description": "The screen", "content": {"text/plain": {}, "application/octet-stream": {}}}},
)
async def show_screen(request: Request, terminal: TerminalInPath, query: Annotated[ScreenQuery, Query()]) -> Response:
    """What the terminal shows now: as text, or (`vt`) as bytes that draw it on a fresh terminal of its size."""
    known = await _known(request, terminal)
    shown = await screen_of(terminals_of(request), known.record, query.format, known.local)
    headers = {
        **_INERT,
        "outlive-offset": str(known.end),
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
    known = await _known(request, terminal)
    end = known.end if query.end is None else min(query.end, known.end)
    pieces = terminals_of(request).recordings.read_output(known.record, query.start, end, local=known.local)
    first = await anext(pieces, None)
    while isinstance(first, Gap):
        first = await anext(pieces, None)
    headers = {
        **_INERT,
        "outlive-offset": str(max(query.start, end) if first is None else first.offset),
        "outlive-end": str(known.end),
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
    known = await _known(request, terminal)
    _check_reached(known, query.start)
    accounting = Accounting(query.start)
    recordings = terminals_of(request).recordings
    records = recordings.read_records(known.record, query.start, query.end, local=known.local)
    async with closing(records) as happened:
        async for each in happened:
            accounting.take(each)
    body = accounting.account().model_dump_json(by_alias=True)
    return Response(body, media_type="application/json", headers=_INERT)


def _check_reached(known: _Known, start: int) -> None:
    """An account from where nothing is yet would look like one of nothing having happened."""
    end = known.end if known.is_newest else max(known.end, known.record.reserved_to)
    if start > end:
        raise InvalidError("terminal.offset_ahead", f"Nothing was printed at {start} yet: it is at {end}.", end=end)


@router.get(
    "/terminals/{terminal}/recording",
    response_class=Response,
    responses=problems(404) | {200: {"description": "asciicast v3", "content": {MEDIA_TYPE: {"schema": _RAW}}}},
)
async def read_recording(request: Request, terminal: TerminalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """All of it as asciicast v3, with what was typed and by whom."""
    lines = _cast(request, await _known(request, terminal))
    first = await anext(lines)  # what is wrong with it is a problem as long as nothing was answered
    return StreamingResponse(_all(first, lines), media_type=MEDIA_TYPE, headers=_INERT)


async def _cast(request: Request, known: _Known) -> AsyncIterator[bytes]:
    record = known.record
    cast = Asciicast(record.cols, record.rows, title=record.title, command=record.command)
    waiting: list[bytes] = []
    size = 0
    async with closing(terminals_of(request).recordings.read_records(record, local=known.local)) as happened:
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
