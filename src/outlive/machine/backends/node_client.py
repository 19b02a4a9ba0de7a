"""The door to machines on their nodes, over HTTP, for the API and tool steps. How a node is called: `node_calls`."""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.abc
from pydantic import TypeAdapter, ValidationError

from outlive.base import (
    Clock,
    DeadlineError,
    EffectId,
    MachineId,
)
from outlive.machine.backends.node_calls import NodeCalls, lines, parse, parse_json
from outlive.machine.backends.node_http import Connection, to_query
from outlive.machine.door import ExecRequest, FileEntry, Output, ProcessEntry
from outlive.machine.node_wire import (
    garbled,
    parse_line,
)
from outlive.machine.records import MachineRecords, Nodes
from outlive.machine.status import Effect

STDIN_WITHIN_S = 45.0  # the node itself gives a command 30 s to read
EXEC_MARGIN_S = 60.0  # beyond a command's own timeout: for its end, and for what waits before it
SILENCE_S = 60.0  # between two pieces of a file

_FILES = TypeAdapter(list[FileEntry])
_PROCESSES = TypeAdapter(list[ProcessEntry])
_PORTS = TypeAdapter(list[int])


class HttpDoor:
    """A `MachineDoor`. `aclose` when nobody uses it any more."""

    def __init__(
        self, machines: MachineRecords, nodes: Nodes, token: str, clock: Clock, tls: ssl.SSLContext | None = None
    ) -> None:
        self.calls = NodeCalls(machines, nodes, token, clock, tls)

    async def aclose(self) -> None:
        await self.calls.aclose()

    # ── commands ──

    async def exec(self, machine: MachineId, generation: int, request: ExecRequest) -> Effect:
        within_s = request.timeout_s + EXEC_MARGIN_S
        raw = await self.calls.call(machine, generation, "POST", "/exec", _body(request), within_s=within_s)
        return parse(Effect, raw)

    async def follow(self, machine: MachineId, generation: int, request: ExecRequest) -> AsyncIterator[Output | Effect]:
        within_s = request.timeout_s + EXEC_MARGIN_S
        deadline = anyio.current_time() + within_s
        async with self.calls.open(machine, generation, "POST", "/follow", _body(request), within_s=within_s) as answer:
            async for line in lines(answer, deadline):
                told = parse_line(line)
                yield told
                if isinstance(told, Effect):
                    return
        raise garbled("the output of a command ended without its result")

    async def effect(self, machine: MachineId, generation: int, effect: EffectId) -> Effect:
        return parse(Effect, await self.calls.call(machine, generation, "GET", f"/effects/{effect}"))

    async def signal(self, machine: MachineId, generation: int, effect: EffectId, number: int) -> None:
        target = f"/effects/{effect}/signal" + to_query({"number": number})
        await self.calls.call(machine, generation, "POST", target, may_repeat=False)

    async def write_stdin(
        self,
        machine: MachineId,
        generation: int,
        effect: EffectId,
        data: bytes,
        *,
        end: bool,
        offset: int | None = None,
    ) -> int:
        target = f"/effects/{effect}/stdin" + to_query({"end": int(end), "offset": offset})
        raw = await self.calls.call(
            machine, generation, "POST", target, data, within_s=STDIN_WITHIN_S, may_repeat=offset is not None
        )
        taken = parse_json(raw).get("offset")
        if not isinstance(taken, int):
            raise garbled("it does not say how much of stdin has come")
        return taken

    # ── files ──

    async def stat_file(self, machine: MachineId, generation: int, path: str) -> FileEntry:
        return parse(FileEntry, await self.calls.call(machine, generation, "GET", "/stat" + to_query({"path": path})))

    async def list_files(self, machine: MachineId, generation: int, path: str) -> Sequence[FileEntry]:
        raw = await self.calls.call(machine, generation, "GET", "/list" + to_query({"path": path}))
        return _parse_list(_FILES, raw)

    @asynccontextmanager
    async def read_file(
        self, machine: MachineId, generation: int, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        target = "/file" + to_query({"path": path, "offset": offset, "limit": limit})
        async with self.calls.open(machine, generation, "GET", target) as answer:
            yield _pieces(answer)

    async def write_file(
        self, machine: MachineId, generation: int, path: str, data: AsyncIterator[bytes], *, mode: int | None = None
    ) -> int:
        target = "/file" + to_query({"path": path, "mode": mode})
        # Its pieces have deadlines of their own; the whole may take as long as it is large.
        raw = await self.calls.call(machine, generation, "PUT", target, data, within_s=float("inf"))
        size = parse_json(raw).get("size")
        if not isinstance(size, int):
            raise garbled("it does not say how much was written")
        return size

    async def delete_file(self, machine: MachineId, generation: int, path: str, *, recursive: bool = False) -> None:
        target = "/file" + to_query({"path": path, "recursive": int(recursive)})
        await self.calls.call(machine, generation, "DELETE", target, may_repeat=False)

    # ── what runs, what listens ──

    async def processes(self, machine: MachineId, generation: int) -> Sequence[ProcessEntry]:
        return _parse_list(_PROCESSES, await self.calls.call(machine, generation, "GET", "/processes"))

    async def ports(self, machine: MachineId, generation: int) -> Sequence[int]:
        return _parse_list(_PORTS, await self.calls.call(machine, generation, "GET", "/ports"))

    async def connect(self, machine: MachineId, generation: int, port: int) -> anyio.abc.ByteStream:
        return await self.calls.dial(machine, generation, port=port)


# ── answers ──


def _body(request: ExecRequest) -> bytes:
    return request.model_dump_json(exclude_defaults=True).encode()


T = TypeVar("T")


def _parse_list(adapter: TypeAdapter[list[T]], raw: bytes) -> list[T]:
    try:
        return adapter.validate_json(raw)
    except ValidationError:
        raise garbled("it is no such list") from None


async def _pieces(answer: Connection) -> AsyncIterator[bytes]:
    pieces = answer.pieces()
    while True:
        try:
            with anyio.fail_after(SILENCE_S):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise DeadlineError("node.slow", "A node began to answer and did not go on.") from None
        if piece is None:
            return
        yield piece
