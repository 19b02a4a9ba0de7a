"""The WebSocket of a terminal. Whatever is wrong is a problem, as long as the connection is still HTTP."""

from typing import Annotated

import anyio
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlive.api.parts import ApiState, machines_of, state_of, terminals_of
from outlive.api.raw import TakeOver, take_over_of
from outlive.api.routes.terminals import TerminalInPath, operator_of, terminal_id
from outlive.api.terminal_relay import Attaching, TerminalRelay
from outlive.api.terminal_shapes import AttachQuery
from outlive.api.websocket import DENIED, NORMAL, RESTARTING, GoneError, WebSocket, accept
from outlive.base import InvalidError, UnavailableError
from outlive.machine.terminal.door import CLIENT_LIMIT, AttachTerminal, FrameStream
from outlive.machine.terminal.frames import SUBPROTOCOLS

router = APIRouter(prefix="/v1")


@router.get("/terminals/{terminal}/attach", include_in_schema=False)
async def attach_terminal(
    request: Request, terminal: TerminalInPath, query: Annotated[AttachQuery, Query()]
) -> Response:
    """Output from an offset, or the present screen and then live; and, with `mode=type`, input. Wakes the machine."""
    of = terminal_id(terminal)
    head, _ = accept(request.headers, SUBPROTOCOLS)
    take_over = take_over_of(request.scope)
    if take_over is None:
        raise InvalidError("websocket.required", "This connection cannot become a WebSocket.")
    state = state_of(request)
    if state.followers >= state.parts.followers_limit:
        raise UnavailableError(
            "stream.full", "This server has as many followers as it takes; try again.", retry_after_s=5
        )
    terminals = terminals_of(request)
    asked = AttachTerminal(
        operator=operator_of(request),
        mode=query.mode,
        offset=query.offset,
        client=_client(request),
        is_return=query.again,
    )
    attaching = Attaching(machines_of(request), terminals, await terminals.records.get(of), asked)
    return _Attachment(state, take_over, head, attaching, await attaching.first())


def _client(request: Request) -> str:
    """From what somebody is here, as it says itself: others are shown it."""
    said = request.headers.get("user-agent", "")
    return "".join(letter for letter in said if letter.isprintable())[:CLIENT_LIMIT]


class _Attachment(Response):
    """Owns the connection and the first attachment, from the moment it is called."""

    def __init__(
        self, state: ApiState, take_over: TakeOver, head: bytes, attaching: Attaching, node: FrameStream
    ) -> None:
        super().__init__()
        self._state = state
        self._take_over = take_over
        self._head = head
        self._attaching = attaching
        self._node = node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, parts = self._state, self._state.parts
        socket = WebSocket(self._take_over(), stall_s=parts.stall_s, now=parts.clock.monotonic)
        relay = TerminalRelay(socket, self._attaching)
        # Whoever cancels us from outside has found that the token is nobody's any more, or ends the process.
        code, reason = DENIED, "the token is not known any more"
        state.followers += 1
        state.metrics.followers.inc()
        try:
            await socket.start(self._head)
            await self._run(socket, relay)
            code, reason = relay.code, relay.reason
        except GoneError:
            code, reason = NORMAL, ""
        finally:
            state.followers -= 1
            state.metrics.followers.dec()
            if parts.closing.is_set():
                code, reason = RESTARTING, "the server restarts"
            with anyio.CancelScope(shield=True):
                await self._node.aclose()
                await socket.close(code, reason)

    async def _run(self, socket: WebSocket, relay: TerminalRelay) -> None:
        async with anyio.create_task_group() as group:

            async def end_when_silent() -> None:
                await socket.keep_alive(self._state.parts.ping_s)
                relay.finish(NORMAL)

            async def end_when_set(event: anyio.Event, code: int) -> None:
                await event.wait()
                relay.finish(code)

            group.start_soon(end_when_silent)
            group.start_soon(end_when_set, socket.lost, NORMAL)
            group.start_soon(end_when_set, self._state.parts.closing, RESTARTING)
            await relay.run(self._node)
            group.cancel_scope.cancel()
