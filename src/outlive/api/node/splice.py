"""Raw connections to servers and terminals in machines: one line asks, one line answers, then bytes go both ways until
both end.

Rule 1: what was read is written before more is read: a slow reader slows its writer, and nothing piles up here.
Rule 2: an end travels. When one side has no more to say the other is told so, and may still answer (half-close).
Rule 3: whoever does not ask within seconds, or asks in too many bytes, or without the token, is cut off.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Protocol

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import ValidationError

from outlive.api.errors import to_answer
from outlive.base import InvalidError, MachineId, NotFoundError, OutliveError, TerminalId, UnauthenticatedError, is_id
from outlive.machine.ahead import Ahead
from outlive.machine.door import MachineDoor
from outlive.machine.node_wire import SPLICE_LINE_LIMIT, SpliceRequest
from outlive.machine.steady import steady
from outlive.machine.terminal.door import AttachTerminal, TerminalDoor

ASK_WITHIN_S = 5.0
CONNECT_WITHIN_S = 15.0
CONNECTIONS_LIMIT = 4_096
_ACCEPT_PAUSE_S = 0.1

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)

_log = logging.getLogger(__name__)

Carry = Callable[[anyio.abc.ByteStream], Awaitable[None]]


class Attachment(Protocol):
    async def run(self, stream: anyio.abc.ByteStream) -> None:
        """Frames with their length both ways, until one side has enough. Does not close the stream."""
        ...


class Terminals(TerminalDoor, Protocol):
    """The terminals of this node."""

    def attached(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: AttachTerminal
    ) -> AbstractAsyncContextManager[Attachment]:
        """As `attach`, for a connection that is here already."""
        ...


class Splicing:
    """Answers raw connections with the machine's own ports, or with its terminals."""

    def __init__(self, door: MachineDoor, token: str, terminals: Terminals | None = None) -> None:
        self._door = door
        self._terminals = terminals
        self._token = token.encode()
        self._open = 0

    async def serve(self, listener: anyio.abc.Listener[anyio.abc.ByteStream]) -> None:
        async with anyio.create_task_group() as group:
            while True:
                try:
                    await listener.serve(self.handle, group)
                except (OSError, anyio.BrokenResourceError) as error:  # no descriptors left: they wait meanwhile
                    _log.warning("raw connections cannot be accepted now: %s", error.__cause__ or error)
                    await anyio.sleep(_ACCEPT_PAUSE_S)

    async def handle(self, near: anyio.abc.ByteStream) -> None:
        """One connection, from its first line to its end."""
        near = steady(near)
        async with near:
            if self._open >= CONNECTIONS_LIMIT:
                _log.warning("as many raw connections as there may be: one was refused")
                return
            self._open += 1
            try:
                await self._handle(near)
            finally:
                self._open -= 1

    async def _handle(self, near: anyio.abc.ByteStream) -> None:
        buffered = BufferedByteReceiveStream(near)
        async with AsyncExitStack() as stack:
            try:
                with anyio.fail_after(ASK_WITHIN_S):
                    asked = self._parse(await buffered.receive_until(b"\n", SPLICE_LINE_LIMIT))
                with anyio.fail_after(CONNECT_WITHIN_S):
                    carry = await self._connect(asked, stack)
            except OutliveError as error:
                with suppress(*_GONE), anyio.move_on_after(ASK_WITHIN_S):
                    await near.send(to_answer(error).body + b"\n")
                return
            except (TimeoutError, anyio.IncompleteRead, anyio.DelimiterNotFound, *_GONE):
                return
            with suppress(*_GONE):
                await near.send(b"{}\n")
                await carry(Ahead(near, buffered.buffer) if buffered.buffer else near)

    async def _connect(self, asked: SpliceRequest, stack: AsyncExitStack) -> Carry:
        """What carries bytes between the caller and what it asked for. The stack closes it."""
        if asked.terminal is not None and asked.attach is not None:
            if self._terminals is None:
                raise NotFoundError("terminal.unknown", "There are no terminals here.")
            attaching = self._terminals.attached(asked.machine, asked.generation, asked.terminal, asked.attach)
            return (await stack.enter_async_context(attaching)).run
        assert asked.port is not None
        far = await stack.enter_async_context(await self._door.connect(asked.machine, asked.generation, asked.port))
        return lambda near: splice(near, far)

    def _parse(self, line: bytes) -> SpliceRequest:
        try:
            asked = SpliceRequest.model_validate_json(line)
        except ValidationError:
            raise InvalidError("request.malformed", "The first line does not say what is wanted.") from None
        if not hmac.compare_digest(asked.token.encode(), self._token):
            raise UnauthenticatedError("node.token", "This is not the token of this node.")
        is_port = asked.port is not None and 1 <= asked.port <= 65_535
        is_terminal = asked.attach is not None and is_id(asked.terminal or "", "term")
        if not is_id(asked.machine, "mach") or is_port == is_terminal:
            raise InvalidError("request.malformed", "There is no such machine, port or terminal.")
        return asked


async def splice(
    near: anyio.abc.ByteStream, far: anyio.abc.ByteStream, touched: Callable[[], None] = lambda: None
) -> None:
    """Bytes both ways until both ways have ended, or one of the two is gone."""
    async with anyio.create_task_group() as group:
        group.start_soon(_carry, near, far, touched, group.cancel_scope)
        await _carry(far, near, touched, group.cancel_scope)


async def _carry(
    source: anyio.abc.ByteReceiveStream,
    sink: anyio.abc.ByteSendStream,
    touched: Callable[[], None],
    scope: anyio.CancelScope,
) -> None:
    try:
        async for piece in source:
            await sink.send(piece)
            touched()
        send_eof = getattr(sink, "send_eof", None)
        if send_eof is not None:
            await send_eof()
    except NotImplementedError:
        scope.cancel()  # TLS has no half-close: the end of one way is the end of both
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        scope.cancel()
