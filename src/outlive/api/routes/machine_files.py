"""Files in machines, as raw bytes in pieces, of any size. Never shown by a browser, only saved: anybody wrote them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated

import anyio
from fastapi import APIRouter, Path, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlive.api.errors import to_answer, to_response
from outlive.api.machine_shapes import (
    DeleteFileQuery,
    FilePage,
    FileQuery,
    FileWritten,
    PutFileQuery,
    file_json,
)
from outlive.api.once import json_answer
from outlive.api.openapi import problems
from outlive.api.paging import no_cursor, page_of
from outlive.api.parts import MachineParts, machines_of, parts_of
from outlive.api.paths import ByteRange, InMachine, parse_range, path_in_machine
from outlive.api.routes.machines import MachineInPath, machine_id
from outlive.base import ConflictError, DeadlineError, InvalidError, MachineId, OutliveError, UnavailableError
from outlive.machine.door import FileEntry

router = APIRouter(prefix="/v1")

_SAFE = [
    (b"content-type", b"application/octet-stream"),
    (b"content-disposition", b"attachment"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"cache-control", b"no-store"),
    (b"accept-ranges", b"bytes"),
]
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

PathInPath = Annotated[str, Path(description="Where it is in the machine, from the root; the first slash is left out.")]


def _path(request: Request) -> InMachine:
    return path_in_machine(request.scope["raw_path"], b"/files/")


def _file_path(request: Request) -> str:
    found = _path(request)
    if found.names_directory:
        raise InvalidError("file.path", "This path names a directory, not a file.")
    return found.path


def _key(entry: FileEntry) -> bytes:
    """A name may hold anything, halves of surrogate pairs included."""
    return entry.name.encode("utf-8", "surrogatepass")


def _after(cursor: str | None) -> bytes | None:
    try:
        return None if cursor is None else bytes.fromhex(cursor)
    except ValueError:
        raise no_cursor() from None


@router.get(
    "/machines/{machine}/files/{path:anything}",
    response_class=Response,
    response_model=FilePage,
    responses=problems(404, 409, 416)
    | {
        200: {"description": "The bytes, or with `list` or `stat` JSON", "content": _BYTES},
        206: {"description": "The bytes that `Range` asked for", "content": _BYTES},
    },
)
async def read_file(
    request: Request, machine: MachineInPath, path: PathInPath, query: Annotated[FileQuery, Query()]
) -> Response:
    """The bytes of a file; with `list` what is in a directory, with `stat` what kind of file it is. Wakes a hibernated
    machine."""
    machines, of = machines_of(request), machine_id(machine)
    door = machines.caller.door
    if query.list:
        place = _path(request).path
        found = await machines.caller.use(of, lambda generation: door.list_files(of, generation, place))
        page, following = page_of(found, _key, after=_after(query.cursor), limit=query.limit)
        cursor = following.hex() if following is not None else None
        return to_response(json_answer(200, {"items": [file_json(each) for each in page], "next": cursor}))
    if query.stat:
        place = _path(request).path
        entry = await machines.caller.use(of, lambda generation: door.stat_file(of, generation, place))
        return to_response(json_answer(200, file_json(entry)))
    place = _file_path(request)
    entry = await machines.caller.use(of, lambda generation: door.stat_file(of, generation, place))
    if entry.kind != "file":
        raise ConflictError("file.not_a_file", f"{place!r} is a {entry.kind}: ask with ?list=1.", is_kind=entry.kind)
    # What says that it is empty may have something all the same: /proc is full of such files.
    part = parse_range(request.headers.get("range"), entry.size) if entry.size else None
    return _FileResponse(machines, of, place, entry, part)


class _FileResponse(Response):
    """The bytes as they come from the machine. What cannot be finished is broken off."""

    def __init__(
        self, machines: MachineParts, machine: MachineId, path: str, entry: FileEntry, part: ByteRange | None
    ) -> None:
        super().__init__()
        self._machines = machines
        self._machine = machine
        self._path = path
        self._entry = entry
        self._part = part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size, part = self._entry.size, self._part
        asked = part or ByteRange(0, size)
        async with AsyncExitStack() as stack:
            try:
                pieces = await self._open(stack, asked)
            except OutliveError as error:
                await to_response(to_answer(error))(scope, receive, send)
                return
            headers = list(_SAFE)
            if size:
                headers.append((b"content-length", str(asked.size).encode()))
            if part is not None:
                end = part.start + part.size - 1
                headers.append((b"content-range", f"bytes {part.start}-{end}/{size}".encode()))
            await send({"type": "http.response.start", "status": 206 if part else 200, "headers": headers})
            sent = 0
            async for piece in pieces:
                sent += len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if not size or sent == asked.size:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _open(self, stack: AsyncExitStack, asked: ByteRange) -> AsyncIterator[bytes]:
        caller = self._machines.caller
        limit = asked.size if self._entry.size else None

        async def open_at(generation: int) -> AsyncIterator[bytes]:
            reading = caller.door.read_file(self._machine, generation, self._path, offset=asked.start, limit=limit)
            return await stack.enter_async_context(reading)

        return await caller.use(self._machine, open_at)


@router.put(
    "/machines/{machine}/files/{path:anything}",
    response_model=FileWritten,
    responses=problems(404, 408, 409),
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
)
async def write_file(
    request: Request, machine: MachineInPath, path: PathInPath, query: Annotated[PutFileQuery, Query()]
) -> Response:
    """Write a file, whole or not at all; directories above it are made. Wakes a hibernated machine."""
    machines, of, place = machines_of(request), machine_id(machine), _file_path(request)
    mode = int(query.mode, 8) if query.mode else None
    awake = await machines.keeper.ensure_awake(of)
    pieces = _pieces(request, parts_of(request).body_silence_s)
    size = await machines.caller.door.write_file(of, awake.generation, place, pieces, mode=mode)
    return to_response(json_answer(200, {"path": place, "size": size}))


async def _pieces(request: Request, silence_s: float) -> AsyncIterator[bytes]:
    pieces = request.stream()
    while True:
        try:
            with anyio.fail_after(silence_s):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise DeadlineError("request.too_slow", "The body of the request came too slowly; send it again.") from None
        except ClientDisconnect:
            raise UnavailableError("request.cut_off", "The request ended before its body did.") from None
        if piece is None:
            return
        if piece:
            yield piece


@router.delete("/machines/{machine}/files/{path:anything}", status_code=204, responses=problems(404, 409))
async def delete_file(
    request: Request, machine: MachineInPath, path: PathInPath, query: Annotated[DeleteFileQuery, Query()]
) -> Response:
    """Delete a file, or with `recursive` a directory and all that is in it. Wakes a hibernated machine."""
    machines, of, place = machines_of(request), machine_id(machine), _path(request).path
    awake = await machines.keeper.ensure_awake(of)
    await machines.caller.door.delete_file(of, awake.generation, place, recursive=query.recursive)
    return Response(status_code=204)
