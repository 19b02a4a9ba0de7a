"""The door to machines on their nodes, over HTTP: what the API and tool steps use.

Rule 1: a call costs one round trip and no query: a generation is on one node for all its life, so where it is is
        remembered; where a node is is remembered for a few seconds.
Rule 2: an error of the node comes out as the same error: kind, code and sentence. Only that the node does not know us
        is not the fault of who asked us: `node.token`, unavailable.
"""

import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.abc
import orjson
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import BaseModel, TypeAdapter, ValidationError

from outlive.base import (
    Clock,
    DeadlineError,
    EffectId,
    FencedError,
    MachineId,
    NodeId,
    OutliveError,
    UnavailableError,
)
from outlive.machine.backends.node_http import Connection, NodePool, away, dial, to_query
from outlive.machine.door import ExecRequest, FileEntry, Output, ProcessEntry
from outlive.machine.node_wire import (
    SPLICE_LINE_LIMIT,
    NodeAddress,
    SpliceRequest,
    error_of,
    garbled,
    parse_address,
    parse_line,
)
from outlive.machine.records import MachineRecords, Nodes
from outlive.machine.status import Effect

CALL_WITHIN_S = 30.0
STDIN_WITHIN_S = 45.0  # the node itself gives a command 30 s to read
EXEC_MARGIN_S = 60.0  # beyond a command's own timeout: for its end, and for what waits before it
SILENCE_S = 60.0  # between two pieces of a file
LINE_LIMIT = 2 * 1024 * 1024
_REMEMBERED = 4_096
_ADDRESS_S = 5.0

M = TypeVar("M", bound=BaseModel)
_FILES = TypeAdapter(list[FileEntry])
_PROCESSES = TypeAdapter(list[ProcessEntry])
_PORTS = TypeAdapter(list[int])


class HttpDoor:
    """A `MachineDoor`. `aclose` when nobody uses it any more."""

    def __init__(
        self, machines: MachineRecords, nodes: Nodes, token: str, clock: Clock, tls: ssl.SSLContext | None = None
    ) -> None:
        self._machines = machines
        self._nodes = nodes
        self._token = token
        self._clock = clock
        self._tls = tls
        self._pool = NodePool(token, tls)
        self._node_of: OrderedDict[tuple[MachineId, int], NodeId] = OrderedDict()
        self._address_of: dict[NodeId, tuple[NodeAddress, float]] = {}

    async def aclose(self) -> None:
        await self._pool.aclose()

    # ── commands ──

    async def exec(self, machine: MachineId, generation: int, request: ExecRequest) -> Effect:
        within_s = request.timeout_s + EXEC_MARGIN_S
        raw = await self._call(machine, generation, "POST", "/exec", _body(request), within_s=within_s)
        return _parse(Effect, raw)

    async def follow(self, machine: MachineId, generation: int, request: ExecRequest) -> AsyncIterator[Output | Effect]:
        within_s = request.timeout_s + EXEC_MARGIN_S
        deadline = anyio.current_time() + within_s
        async with self._open(machine, generation, "POST", "/follow", _body(request), within_s=within_s) as answer:
            async for line in _lines(answer, deadline):
                told = parse_line(line)
                yield told
                if isinstance(told, Effect):
                    return
        raise garbled("the output of a command ended without its result")

    async def effect(self, machine: MachineId, generation: int, effect: EffectId) -> Effect:
        return _parse(Effect, await self._call(machine, generation, "GET", f"/effects/{effect}"))

    async def signal(self, machine: MachineId, generation: int, effect: EffectId, number: int) -> None:
        target = f"/effects/{effect}/signal" + to_query({"number": number})
        await self._call(machine, generation, "POST", target, may_repeat=False)

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
        raw = await self._call(
            machine, generation, "POST", target, data, within_s=STDIN_WITHIN_S, may_repeat=offset is not None
        )
        taken = _parse_json(raw).get("offset")
        if not isinstance(taken, int):
            raise garbled("it does not say how much of stdin has come")
        return taken

    # ── files ──

    async def stat_file(self, machine: MachineId, generation: int, path: str) -> FileEntry:
        return _parse(FileEntry, await self._call(machine, generation, "GET", "/stat" + to_query({"path": path})))

    async def list_files(self, machine: MachineId, generation: int, path: str) -> Sequence[FileEntry]:
        raw = await self._call(machine, generation, "GET", "/list" + to_query({"path": path}))
        return _parse_list(_FILES, raw)

    @asynccontextmanager
    async def read_file(
        self, machine: MachineId, generation: int, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        target = "/file" + to_query({"path": path, "offset": offset, "limit": limit})
        async with self._open(machine, generation, "GET", target) as answer:
            yield _pieces(answer)

    async def write_file(
        self, machine: MachineId, generation: int, path: str, data: AsyncIterator[bytes], *, mode: int | None = None
    ) -> int:
        target = "/file" + to_query({"path": path, "mode": mode})
        # Its pieces have deadlines of their own; the whole may take as long as it is large.
        raw = await self._call(machine, generation, "PUT", target, data, within_s=float("inf"))
        size = _parse_json(raw).get("size")
        if not isinstance(size, int):
            raise garbled("it does not say how much was written")
        return size

    async def delete_file(self, machine: MachineId, generation: int, path: str, *, recursive: bool = False) -> None:
        target = "/file" + to_query({"path": path, "recursive": int(recursive)})
        await self._call(machine, generation, "DELETE", target, may_repeat=False)

    # ── what runs, what listens ──

    async def processes(self, machine: MachineId, generation: int) -> Sequence[ProcessEntry]:
        return _parse_list(_PROCESSES, await self._call(machine, generation, "GET", "/processes"))

    async def ports(self, machine: MachineId, generation: int) -> Sequence[int]:
        return _parse_list(_PORTS, await self._call(machine, generation, "GET", "/ports"))

    async def connect(self, machine: MachineId, generation: int, port: int) -> anyio.abc.ByteStream:
        address = (await self._find(machine, generation)).splice
        asked = SpliceRequest(token=self._token, machine=machine, generation=generation, port=port)
        stream = await dial(address, self._tls)
        try:
            with anyio.fail_after(CALL_WITHIN_S):
                await stream.send(asked.model_dump_json().encode() + b"\n")
                # Byte by byte would be slow, more could be the machine's: the answer comes alone, the first bytes of
                # the machine's may follow it in the same piece.
                buffered = BufferedByteReceiveStream(stream)
                problem = _parse_json(await buffered.receive_until(b"\n", SPLICE_LINE_LIMIT))
        except TimeoutError:
            await anyio.aclose_forcefully(stream)
            raise DeadlineError("node.slow", f"The node at {address} did not answer in time.") from None
        except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError) as error:
            await anyio.aclose_forcefully(stream)
            raise away(address, "it hung up") from error
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        if problem:
            await anyio.aclose_forcefully(stream)
            raise _refusal(address, problem)
        return _Ahead(stream, buffered.buffer) if buffered.buffer else stream

    # ── calls ──

    async def _call(
        self,
        machine: MachineId,
        generation: int,
        method: str,
        target: str,
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        within_s: float = CALL_WITHIN_S,
        may_repeat: bool = True,
    ) -> bytes:
        opened = self._open(machine, generation, method, target, body, within_s=within_s, may_repeat=may_repeat)
        async with opened as answer:
            return await _whole(answer)

    @asynccontextmanager
    async def _open(
        self,
        machine: MachineId,
        generation: int,
        method: str,
        target: str,
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        within_s: float = CALL_WITHIN_S,
        may_repeat: bool = True,
    ) -> AsyncIterator[Connection]:
        """The answer of the machine's node from its head on; raises what the node refused with."""
        address = await self._find(machine, generation)
        full = f"/machines/{machine}/{generation}{target}"
        asked = self._pool.request(address, method, full, body, head_within_s=within_s, may_repeat=may_repeat)
        try:
            async with asked as answer:
                if answer.status != 200:
                    raise _refusal(address, _parse_json(await _whole(answer)))
                yield answer
        except UnavailableError as error:
            if error.code == "node.away":  # it may be somewhere else by now
                self._forget(machine, generation)
            raise

    async def _find(self, machine: MachineId, generation: int) -> NodeAddress:
        node = self._node_of.get((machine, generation))
        if node is None:
            record = await self._machines.get(machine)
            if record.node is None or record.generation != generation:
                raise FencedError(
                    "machine.fenced", f"Machine {machine!r} is at generation {record.generation}; {generation} is over."
                )
            node = self._node_of[machine, generation] = record.node
            if len(self._node_of) > _REMEMBERED:
                self._node_of.popitem(last=False)
        known = self._address_of.get(node)
        if known is None or known[1] <= self._clock.monotonic():
            address = parse_address((await self._nodes.get(node)).address)
            known = self._address_of[node] = (address, self._clock.monotonic() + _ADDRESS_S)
        return known[0]

    def _forget(self, machine: MachineId, generation: int) -> None:
        node = self._node_of.pop((machine, generation), None)
        if node is not None:
            self._address_of.pop(node, None)


class _Ahead(anyio.abc.ByteStream):
    """A stream of which some bytes were read already."""

    def __init__(self, stream: anyio.abc.ByteStream, ahead: bytes) -> None:
        self._stream = stream
        self._ahead = ahead

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        if self._ahead:
            piece, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
            return piece
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


# ── answers ──


def _refusal(address: NodeAddress, problem: dict[str, Any]) -> OutliveError:
    error = error_of(problem)
    if error.code != "node.token":
        return error
    return UnavailableError(
        "node.token", f"The node at {address} does not take our token: node.token has to be the same on all hosts."
    )


def _body(request: ExecRequest) -> bytes:
    return request.model_dump_json(exclude_defaults=True).encode()


def _parse(model: type[M], raw: bytes) -> M:
    try:
        return model.model_validate_json(raw)
    except ValidationError:
        raise garbled(f"it is no {model.__name__}") from None


T = TypeVar("T")


def _parse_list(adapter: TypeAdapter[list[T]], raw: bytes) -> list[T]:
    try:
        return adapter.validate_json(raw)
    except ValidationError:
        raise garbled("it is no such list") from None


def _parse_json(raw: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(raw)
    except ValueError:
        raise garbled("it is not JSON") from None
    if not isinstance(value, dict):
        raise garbled("it is not an object")
    return value


async def _whole(answer: Connection) -> bytes:
    try:
        with anyio.fail_after(CALL_WITHIN_S):
            return await answer.read_whole()
    except TimeoutError:
        raise DeadlineError("node.slow", "A node began to answer and did not go on.") from None


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


async def _lines(answer: Connection, deadline: float) -> AsyncIterator[bytes]:
    pieces = answer.pieces()
    waiting = b""
    while True:
        try:
            with anyio.fail_after(max(0.0, deadline - anyio.current_time())):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise DeadlineError("node.slow", "A command is over its time, and its node does not say so.") from None
        if piece is None:
            return
        *whole, waiting = (waiting + piece).split(b"\n")
        for line in whole:
            yield line
        if len(waiting) > LINE_LIMIT:
            raise garbled("a line of output is too long")
