"""Calls to the node that has a machine: where it is, one request and its answer, one raw connection.

Rule 1: a call costs one round trip and no query: a generation is on one node for all its life, so where it is is
        remembered; where a node is is remembered for a few seconds.
Rule 2: an error of the node comes out as the same error: kind, code and sentence. Only that the node does not know us
        is not the fault of who asked us: `node.token`, unavailable.
"""

import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.abc
import orjson
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import BaseModel, ValidationError

from outlive.base import Clock, DeadlineError, FencedError, MachineId, NodeId, OutliveError, UnavailableError
from outlive.machine.ahead import Ahead
from outlive.machine.backends.node_http import Connection, NodePool, away, dial
from outlive.machine.node_wire import (
    SPLICE_LINE_LIMIT,
    NodeAddress,
    SpliceRequest,
    error_of,
    garbled,
    parse_address,
)
from outlive.machine.records import MachineRecords, Nodes

CALL_WITHIN_S = 30.0
LINE_LIMIT = 2 * 1024 * 1024
_REMEMBERED = 4_096
_ADDRESS_S = 5.0

M = TypeVar("M", bound=BaseModel)


class NodeCalls:
    """`aclose` when nobody uses it any more."""

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

    async def call(
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
        opened = self.open(machine, generation, method, target, body, within_s=within_s, may_repeat=may_repeat)
        async with opened as answer:
            return await _whole(answer)

    @asynccontextmanager
    async def open(
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
                    raise _refusal(address, parse_json(await _whole(answer)))
                yield answer
        except UnavailableError as error:
            if error.code == "node.away":  # it may be somewhere else by now
                self._forget(machine, generation)
            raise

    async def dial(self, machine: MachineId, generation: int, **wanted: object) -> anyio.abc.ByteStream:
        """A raw connection to what is wanted there (see `SpliceRequest`)."""
        address = (await self._find(machine, generation)).splice
        asked = SpliceRequest.model_validate(
            {"token": self._token, "machine": machine, "generation": generation, **wanted}
        )
        try:
            stream = await dial(address, self._tls)
        except UnavailableError:
            self._forget(machine, generation)  # it may be somewhere else by now
            raise
        try:
            with anyio.fail_after(CALL_WITHIN_S):
                await stream.send(asked.model_dump_json().encode() + b"\n")
                # Byte by byte would be slow, more could be the machine's: the answer comes alone, the first bytes of
                # the machine's may follow it in the same piece.
                buffered = BufferedByteReceiveStream(stream)
                problem = parse_json(await buffered.receive_until(b"\n", SPLICE_LINE_LIMIT))
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
        return Ahead(stream, buffered.buffer) if buffered.buffer else stream

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


# ── answers ──


def _refusal(address: NodeAddress, problem: dict[str, Any]) -> OutliveError:
    error = error_of(problem)
    if error.code != "node.token":
        return error
    return UnavailableError(
        "node.token", f"The node at {address} does not take our token: node.token has to be the same on all hosts."
    )


def parse(model: type[M], raw: bytes) -> M:
    try:
        return model.model_validate_json(raw)
    except ValidationError:
        raise garbled(f"it is no {model.__name__}") from None


def parse_json(raw: bytes) -> dict[str, Any]:
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


async def lines(answer: Connection, deadline: float) -> AsyncIterator[bytes]:
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
