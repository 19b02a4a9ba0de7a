"""A WebSocket on a connection taken over from the HTTP server: whole messages in, binary ones out, all of it bounded.

Rule 1: the handshake is an HTTP request like any other: it passes the gate, and what is wrong with it is a problem.
Rule 2: nothing is compressed: a keystroke's echo must not wait for a window to fill.
Rule 3: a client that takes nothing, or of which nothing is heard, for `stall_s` is cut off. One that is slow only holds
        up whoever sends to it.
"""

import base64
import binascii
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import anyio
import anyio.lowlevel
from starlette.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidState
from websockets.frames import Opcode
from websockets.protocol import SEND_EOF, Protocol, Side, State
from websockets.utils import accept_key

from outlive.api.raw import RawStream
from outlive.base import InvalidError, UnavailableError

MESSAGE_LIMIT = 1024 * 1024
LINGER_S = 2.0  # for the client to close its side too

NORMAL = 1000
UNSUPPORTED = 1003
MALFORMED = 1007
DENIED = 1008
FAILED = 1011
RESTARTING = 1012
TOO_SLOW = 1013

_PIECE = 64 * 1024
_REASON_LIMIT = 30  # characters; at most 123 bytes, as UTF-8
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class GoneError(UnavailableError):
    """The client is not there any more, or may as well not be."""

    def __init__(self) -> None:
        super().__init__("websocket.gone", "The client of this WebSocket is gone.")


class RefusedMessageError(InvalidError):
    """What the client sent cannot be taken: the connection ends with this code."""

    def __init__(self, close_code: int, why: str) -> None:
        super().__init__("websocket.message", why)
        self.close_code = close_code


def asks_for_websocket(headers: Headers) -> bool:
    return headers.get("upgrade", "").lower() == "websocket"


def offered_protocols(headers: Headers) -> list[str]:
    """The subprotocols that the client speaks, as it orders them."""
    return [word.strip() for given in headers.getlist("sec-websocket-protocol") for word in given.split(",")]


def accept(headers: Headers, supported: Iterable[str]) -> tuple[bytes, str | None]:
    """The answer to a handshake, as bytes, and the subprotocol that was chosen. Raises a problem for one that is no
    handshake."""
    connection = {word.strip().lower() for given in headers.getlist("connection") for word in given.split(",")}
    if not asks_for_websocket(headers) or "upgrade" not in connection:
        raise InvalidError("websocket.required", "Only a WebSocket is served at this address.")
    if headers.get("sec-websocket-version") != "13":
        raise InvalidError("websocket.required", "Only version 13 of WebSocket is spoken here.")
    keys = headers.getlist("sec-websocket-key")
    if len(keys) != 1 or not _is_key(keys[0]):
        raise InvalidError("websocket.handshake", "The Sec-WebSocket-Key is missing or is none.")
    offered = offered_protocols(headers)
    chosen = next((each for each in supported if each in offered), None)
    told: dict[str, str] = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-accept": accept_key(keys[0]),
        **({"sec-websocket-protocol": chosen} if chosen is not None else {}),
    }
    return _head(told), chosen


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _head(told: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode()


class WebSocket:
    """One open connection. One task receives, any number send. Whoever takes it over closes it."""

    def __init__(self, stream: RawStream, *, stall_s: float, now: Callable[[], float]) -> None:
        self._stream = stream
        self._stall_s = stall_s
        self._now = now
        self._protocol = Protocol(Side.SERVER, state=State.OPEN, max_size=MESSAGE_LIMIT)
        self._whole: deque[bytes] = deque()
        self._part: bytearray | None = None
        self._is_text = False
        self._is_listening = False
        self._heard_at = now()

    @property
    def lost(self) -> anyio.Event:
        return self._stream.lost

    async def start(self, head: bytes) -> None:
        await self._write([head])

    async def receive(self) -> bytes:
        """The next message; a text one as its UTF-8. `GoneError` when the client has closed or is gone,
        `RefusedMessageError` for what is no message."""
        while not self._whole:
            self._is_listening, self._heard_at = True, self._now()
            try:
                data = await self._stream.receive(_PIECE)
            except _GONE:
                raise GoneError from None
            finally:
                self._is_listening = False
            self._protocol.receive_data(data)
            for frame in self._protocol.events_received():
                self._take(frame.opcode, bytes(frame.data), is_last=frame.fin)  # type: ignore[union-attr]
            await self._flush()
            if self._protocol.state is not State.OPEN and not self._whole:
                raise GoneError
        return self._whole.popleft()

    def _take(self, opcode: Opcode, data: bytes, *, is_last: bool) -> None:
        if opcode in (Opcode.TEXT, Opcode.BINARY):
            self._is_text = opcode is Opcode.TEXT
            self._part = bytearray()
        elif opcode is not Opcode.CONT:
            return  # pings are answered below us, and pongs have been heard
        assert self._part is not None
        self._part += data
        if is_last:
            message, self._part = bytes(self._part), None
            if self._is_text and not _is_utf8(message):
                raise RefusedMessageError(MALFORMED, "a text is not UTF-8")
            self._whole.append(message)

    async def send(self, data: bytes) -> None:
        """One binary message. Waits while the client is slow; `GoneError` if it takes nothing for too long."""
        try:
            self._protocol.send_binary(data)
        except (ConnectionClosed, InvalidState):
            raise GoneError from None
        await self._flush()

    async def keep_alive(self, ping_s: float) -> None:
        """Ask now and then whether somebody is there. Returns when nobody is."""
        while True:
            await anyio.sleep(ping_s)
            # While nobody listens here, nothing can be heard: that says nothing about the client.
            if self._is_listening and self._now() - self._heard_at > self._stall_s:
                self._stream.abort()
                return
            try:
                self._protocol.send_ping(b"")
                await self._flush()
            except (ConnectionClosed, InvalidState, GoneError):
                return

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Say goodbye, wait a moment for the same, and end the connection. Nothing is heard of what is still sent."""
        with anyio.CancelScope(shield=True):
            with suppress(GoneError, ConnectionClosed, InvalidState), anyio.move_on_after(LINGER_S):
                if self._protocol.state is State.OPEN:
                    self._protocol.send_close(code, reason[:_REASON_LIMIT])
                await self._flush()
                await self._hear_out()
            if not self._stream.is_flushed:
                self._stream.abort()  # a plain close would wait until all is taken
            await self._stream.aclose()

    async def _hear_out(self) -> None:
        with suppress(*_GONE):
            while self._protocol.close_rcvd is None:
                self._protocol.receive_data(await self._stream.receive(_PIECE))
                self._protocol.events_received()
                await self._flush()

    async def _flush(self) -> None:
        if pieces := self._protocol.data_to_send():
            await self._write(pieces)

    async def _write(self, pieces: list[bytes]) -> None:
        try:
            # Written at once, before anything is waited for: what several tasks send is not mixed.
            if not self._stream.send_now(b"".join(pieces)):
                with anyio.fail_after(self._stall_s):
                    await self._stream.drain()
            if SEND_EOF in pieces:
                await self._stream.send_eof()
            await anyio.lowlevel.checkpoint()
        except TimeoutError:
            self._stream.abort()
            raise GoneError from None
        except _GONE:
            raise GoneError from None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
