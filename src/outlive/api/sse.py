"""The stream of one conversation as server-sent events: the hot path of the house.

Rule 1: what comes together goes out together: one chunk for each batch of frames.
Rule 2: whatever is wrong with the request is answered as a problem before the stream starts. A stream that cannot go on
        ends, and its client comes back with the position it has.
Rule 3: a slow client waits in its own `send` and holds up nobody; what it misses meanwhile it reads from the log.
Rule 4: a stream ends soon after the token it was opened with was revoked.
Rule 5: waiting for frames is never cut short to do something else: frames that were taken would be lost. So one task
        follows, another watches for silence, for the client leaving, and for a client that is there but takes nothing.
"""

import logging
from typing import Protocol, cast

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlive.api.gate import is_still_known
from outlive.api.parts import ApiState
from outlive.base import ConversationId, OutliveError, UnavailableError, to_text
from outlive.conversation.conversations import Following
from outlive.conversation.position import Position

FIRST = b"retry: 1000\n\n"
PING = b": ping\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_LAST_WORD_S = 1.0

_log = logging.getLogger(__name__)


class _Connection(Protocol):
    """What lies below the stream, as our server puts it into the scope."""

    def get_write_buffer_size(self) -> int: ...

    def abort(self) -> None: ...


class _NoConnection:
    """Below another server: nothing is known of what waits there."""

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        pass


def _connection_of(scope: Scope) -> _Connection:
    return cast("_Connection", scope.get("outlive.connection") or _NoConnection())


class EventStream(Response):
    """An ASGI response of its own: Starlette's has a task group and an iterator where we have a loop."""

    def __init__(self, state: ApiState, conversation: ConversationId, position: Position, *, deltas: bool) -> None:
        super().__init__()
        self._state = state
        self._conversation = conversation
        self._position = position
        self._deltas = deltas
        self._is_sending = False
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        if state.followers >= state.parts.followers_limit:
            raise UnavailableError(
                "stream.full", "This server has as many followers as it takes; try again.", retry_after_s=5
            )
        state.followers += 1
        state.metrics.followers.inc()
        try:
            conversations = state.parts.conversations
            async with conversations.follow(self._conversation, self._position, deltas=self._deltas) as following:
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                await self._send(send, FIRST)
                # Inside `follow`, so that the subscription is given back by code that is not being cancelled.
                async with anyio.create_task_group() as group:
                    group.start_soon(self._watch_client, scope, receive, send, group.cancel_scope)
                    group.start_soon(self._watch_server, group.cancel_scope)
                    # A task of its own: it is woken for every frame, and here that would go through all layers above.
                    group.start_soon(self._show_until_the_end, following, send, group.cancel_scope)
            with anyio.move_on_after(_LAST_WORD_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            state.followers -= 1
            state.metrics.followers.dec()

    async def _show_until_the_end(self, following: Following, send: Send, scope: anyio.CancelScope) -> None:
        await self._show(following, send)
        scope.cancel()

    async def _show(self, following: Following, send: Send) -> None:
        """Frames, until cancelled or until the log cannot be read."""
        state = self._state
        encode = state.frames.encode
        frames_sent = state.metrics.frames
        since = to_text(state.parts.clock.now())
        try:
            while True:
                frames = await following.next_frames()
                if frames:
                    await self._send(send, encode(self._conversation, frames, since))
                    frames_sent.inc(len(frames))
        except OutliveError as error:
            _log.warning("a stream of %s ended: %s (%s)", self._conversation, error.message, error.code)
        except OSError:
            pass  # the client is gone, and the server says so in this way

    async def _send(self, send: Send, chunk: bytes) -> None:
        self._is_sending = True
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._is_sending = False
        self._sent_at = self._state.parts.clock.monotonic()

    async def _watch_client(self, request: Scope, receive: Receive, send: Send, scope: anyio.CancelScope) -> None:
        """End the stream when its client leaves, takes nothing or is shut out; say something when nothing was said for
        long."""
        parts, connection = self._state.parts, _connection_of(request)
        ping_s, stall_s, recheck_s = parts.ping_s, parts.stall_s, parts.recheck_s
        monotonic = parts.clock.monotonic
        seen = (0.0, 0)  # when something was last sent, and how much of it waited to be taken
        seen_at = 0.0
        checked_at = monotonic()
        while True:
            due_at = min(self._sent_at + ping_s, checked_at + recheck_s)
            with anyio.move_on_after(max(0.0, due_at - monotonic())) as silence:
                message = await receive()
                if message["type"] == "http.disconnect":
                    scope.cancel()
                    return
            if not silence.cancelled_caught:
                continue
            if monotonic() >= checked_at + recheck_s:
                if not await is_still_known(request, parts.principals):
                    scope.cancel()
                    return
                checked_at = monotonic()
            if monotonic() < self._sent_at + ping_s:
                continue
            waiting = connection.get_write_buffer_size()
            if self._is_sending or waiting:
                # A slow client: it has something to read. Is it still reading?
                now = monotonic()
                if seen != (self._sent_at, waiting):
                    seen_at = now
                elif now >= seen_at + stall_s:
                    connection.abort()  # a close would wait until everything is taken
                    scope.cancel()
                    return
                self._sent_at = now
                seen = (now, waiting)
            else:
                # A frame may come meanwhile and overtake it; each is whole, so that does no harm.
                await self._send(send, PING)

    async def _watch_server(self, scope: anyio.CancelScope) -> None:
        await self._state.parts.closing.wait()
        scope.cancel()
