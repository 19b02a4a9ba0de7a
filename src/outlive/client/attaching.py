"""An attachment to a terminal that lasts: it comes back by itself through cut connections and restarted servers.

Rule 1: each byte of output is given out once, in order; a new connection begins where the last one ended. What is gone
        for good is told as `gap`.
Rule 2: nothing that was typed is sent twice. What was handed to a connection is not repeated on the next one: if that
        one broke at this moment, it may be lost. What was typed while there was none is kept, up to `UNSENT_LIMIT`.
Rule 3: what cannot heal (not known, not found, not allowed) is raised. What can is waited out.
"""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio

from outlive.base import ExhaustedError, OutliveError
from outlive.client.terminal_wire import (
    CLOSE,
    INPUT,
    Attached,
    Mode,
    TerminalExit,
    TerminalFrame,
    checked_terminal,
    resize_message,
)
from outlive.client.transport import UNTRUSTED, Backoff, Transport

if TYPE_CHECKING:
    from outlive.client.websocket import WebSocket

UNSENT_LIMIT = 64 * 1024
_PIECE = 16 * 1024  # of what is typed, in one message
_HEALING = frozenset({"unavailable", "deadline", "exhausted"})

OnLost = Callable[[OutliveError, float], None]
"""Told when the connection is lost: why, and how long until the next attempt."""


class Attachment:
    """An async iterator over frames, and a context manager. Ends with the terminal; an error ends it too.

    One task reads, others may type and resize meanwhile: without a reader nothing reconnects.
    """

    def __init__(
        self,
        transport: Transport,
        terminal: str,
        mode: Mode,
        offset: int | None,
        *,
        client: str,
        give_up_after_s: float | None = None,
        on_lost: OnLost | None = None,
    ) -> None:
        self._transport = transport
        self._path = f"/terminals/{checked_terminal(terminal)}/attach"
        self._mode: Mode = mode
        self._client = client
        self._give_up_after_s = give_up_after_s
        self._on_lost = on_lost
        self._state = Attached(offset)
        self._ready: deque[TerminalFrame] = deque()
        self._socket: WebSocket | None = None
        self._unsent: deque[bytes] = deque()
        self._unsent_size = 0
        self._size: tuple[int, int] | None = None  # that was asked for and not sent
        self._is_input_over = False
        self._sending = anyio.Lock()
        self._backoff = Backoff()
        self._lived_at = time.monotonic()
        self._is_over = False
        self._was: Mode | None = None  # in the connection before
        self._wants_screen = False  # of this connection nothing more counts

    @property
    def offset(self) -> int | None:
        """Of the next byte of output: attach from here another time, and nothing is missed."""
        return self._state.resume_at

    @property
    def lease(self) -> Mapping[str, Any] | None:
        """Who types, as far as was told."""
        return self._state.lease

    @property
    def cols(self) -> int:
        return self._state.cols

    @property
    def rows(self) -> int:
        return self._state.rows

    @property
    def mode(self) -> Mode:
        """A change counts from the next connection on. One that types takes a lease that nobody has."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode

    @property
    def is_connected(self) -> bool:
        return self._socket is not None and self._socket.is_open

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave. The terminal goes on; reading again attaches again."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.aclose()

    # ── what is printed and said ──

    async def __aiter__(self) -> AsyncIterator[TerminalFrame]:
        while (frame := await self.next_frame()) is not None:
            yield frame

    async def next_frame(self) -> TerminalFrame | None:
        """None: it is over, and how was told before."""
        while not self._ready:
            if self._is_over:
                return None
            await self._receive()
        frame = self._ready.popleft()
        if isinstance(frame, TerminalExit):
            self._is_over = True
            await self.aclose()
        return frame

    async def _receive(self) -> None:
        try:
            if self._wants_screen:
                await self.aclose()
                self._wants_screen = False
                self._state.forget()
            if self._socket is None:
                await self._connect()
            assert self._socket is not None
            message = await self._socket.receive()
            if not self._wants_screen:
                self._lived_at = time.monotonic()
                self._backoff.reset()
                self._ready.extend(self._state.take(message))
        except OutliveError as error:
            if not self._wants_screen:
                await self._wait_out(error)

    async def _connect(self) -> None:
        from outlive.client.websocket import open_websocket  # dear to import, and most never attach

        params: dict[str, str | int] = {"mode": self._mode}
        if (offset := self._state.resume_at) is not None:
            params["from"] = offset
        if self._mode == self._was:
            params["again"] = "true"  # who has yielded does not hold it again by being cut off
        self._socket = await open_websocket(self._transport, self._path, params, self._client)
        self._was = self._mode
        await self._flush()

    async def _wait_out(self, error: OutliveError) -> None:
        await self.aclose()
        if error.kind not in _HEALING or error.code == UNTRUSTED:
            raise error
        wait_s = self._backoff.wait_s(error.retry_after_s)
        if self._give_up_after_s is not None and time.monotonic() - self._lived_at + wait_s > self._give_up_after_s:
            raise error
        if self._on_lost is not None:
            self._on_lost(error, wait_s)
        await anyio.sleep(wait_s)
        self._transport.look_again()

    async def redraw(self) -> None:
        """Begin anew with the present screen: the reader attaches again at once, and the next output draws it."""
        self._wants_screen = True
        if self._socket is not None:
            await self._socket.aclose()

    # ── what is typed ──

    async def send(self, data: bytes) -> None:
        """Type. Returns when it was handed to the connection, or is kept for the next one. Whether it was taken is told
        by frames: without the lease it is `refused`."""
        for at in range(0, len(data), _PIECE):
            piece = data[at : at + _PIECE]
            if self._unsent_size + len(piece) > UNSENT_LIMIT:
                raise ExhaustedError(
                    "terminal.unsent", "The server is away: what was typed since is kept, and no more can be."
                )
            self._unsent.append(piece)
            self._unsent_size += len(piece)
            await self._flush()

    async def resize(self, cols: int, rows: int) -> None:
        """The size of the terminal, if we hold the lease. Of several while there is no connection the last counts."""
        resize_message(cols, rows)
        self._size = (cols, rows)
        await self._flush()

    async def end_input(self) -> None:
        """We type no more; the lease is free when somebody wants it."""
        self._is_input_over = True
        await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            while (socket := self._socket) is not None and socket.is_open:
                message = self._next_message()
                if message is None:
                    return
                try:
                    await socket.send(message)
                except OutliveError as error:
                    if error.kind not in _HEALING:
                        raise
                    return  # the reader finds out as well, and connects anew

    def _next_message(self) -> bytes | None:
        """Taken out before it is sent: it is never sent again."""
        if self._size is not None:
            (cols, rows), self._size = self._size, None
            return resize_message(cols, rows)
        if self._unsent:
            piece = self._unsent.popleft()
            self._unsent_size -= len(piece)
            return bytes((INPUT,)) + piece
        if self._is_input_over:
            self._is_input_over = False
            return bytes((CLOSE, INPUT))
        return None
