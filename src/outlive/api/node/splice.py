"""Raw connections to servers in machines: one line asks, one line answers, then bytes go both ways until both end.

Rule 1: what was read is written before more is read: a slow reader slows its writer, and nothing piles up here.
Rule 2: an end travels. When one side has no more to say the other is told so, and may still answer (half-close).
Rule 3: whoever does not ask within seconds, or asks in too many bytes, or without the token, is cut off.
"""

import hmac
import logging
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import ValidationError

from outlive.api.errors import to_answer
from outlive.base import InvalidError, OutliveError, UnauthenticatedError, is_id
from outlive.machine.door import MachineDoor
from outlive.machine.node_wire import SPLICE_LINE_LIMIT, SpliceRequest

ASK_WITHIN_S = 5.0
CONNECT_WITHIN_S = 15.0
CONNECTIONS_LIMIT = 4_096

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)

_log = logging.getLogger(__name__)


class Splicing:
    """Answers raw connections with the machine's own ports."""

    def __init__(self, door: MachineDoor, token: str) -> None:
        self._door = door
        self._token = token.encode()
        self._open = 0

    async def serve(self, listener: anyio.abc.Listener[anyio.abc.ByteStream]) -> None:
        await listener.serve(self.handle)

    async def handle(self, near: anyio.abc.ByteStream) -> None:
        """One connection, from its first line to its end."""
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
        try:
            buffered = BufferedByteReceiveStream(near)
            with anyio.fail_after(ASK_WITHIN_S):
                asked = self._parse(await buffered.receive_until(b"\n", SPLICE_LINE_LIMIT))
            with anyio.fail_after(CONNECT_WITHIN_S):
                far = await self._door.connect(asked.machine, asked.generation, asked.port)
        except OutliveError as error:
            with suppress(*_GONE), anyio.move_on_after(ASK_WITHIN_S):
                await near.send(to_answer(error).body + b"\n")
            return
        except (TimeoutError, anyio.IncompleteRead, anyio.DelimiterNotFound, *_GONE):
            return
        async with far:
            with suppress(*_GONE):
                await near.send(b"{}\n")
                if buffered.buffer:
                    await far.send(buffered.buffer)
                await splice(near, far)

    def _parse(self, line: bytes) -> SpliceRequest:
        try:
            asked = SpliceRequest.model_validate_json(line)
        except ValidationError:
            raise InvalidError("request.malformed", "The first line does not say what is wanted.") from None
        if not hmac.compare_digest(asked.token.encode(), self._token):
            raise UnauthenticatedError("node.token", "This is not the token of this node.")
        if not is_id(asked.machine, "mach") or not 1 <= asked.port <= 65_535:
            raise InvalidError("request.malformed", "There is no such machine or port.")
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
