"""A WebSocket to the API: messages of bytes both ways. What the websockets package raises stops in this file.

Nothing is compressed: a keystroke must not wait for a window to fill. A server of which nothing is heard is given up
after `PING_S + PONG_S`.
"""

import logging
import ssl
from collections.abc import Mapping
from types import TracebackType
from urllib.parse import urlencode

import anyio
import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI, WebSocketException
from websockets.protocol import State

from outlive.base import BrokenError, DeadlineError, InvalidError, UnavailableError
from outlive.client.problems import error_of
from outlive.client.terminal_wire import SUBPROTOCOL
from outlive.client.transport import UNTRUSTED, Transport, say_tls, tls_fault

OPEN_S = 90.0  # a machine may have to be woken first
PING_S = 15.0
PONG_S = 15.0
CLOSE_S = 2.0
MESSAGE_LIMIT = 1024 * 1024 + 1
_WAITING = 16  # messages that were received and not taken
_REFUSED = frozenset({1002, 1003, 1007, 1009, 1010})  # the server does not understand us, and will not next time

# Its remarks would land on a screen that belongs to somebody's program.
_log = logging.getLogger("outlive.client.websocket")
_log.propagate = False
_log.addHandler(logging.NullHandler())


async def open_websocket(transport: Transport, path: str, params: Mapping[str, str | int], client: str) -> "WebSocket":
    """`client`: what we say we are. Raises the server's refusal, or `unavailable`, `deadline`."""
    endpoint = transport.endpoint
    is_secure = endpoint.url.startswith("https:")
    headers = {} if endpoint.token is None else {"Authorization": f"Bearer {endpoint.token}"}
    address = f"ws{endpoint.url.removeprefix('http')}/v1{path}"
    with _Translated(endpoint.url), anyio.fail_after(OPEN_S):
        connection = await connect(
            f"{address}?{urlencode(params)}" if params else address,
            subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
            additional_headers=headers,
            user_agent_header=client,
            compression=None,
            # A proxy of the environment is for the world outside, not for this host's own loopback.
            proxy=None if endpoint.is_loopback and not is_secure else True,
            ssl=httpx.create_ssl_context() if is_secure else None,
            open_timeout=None,
            ping_interval=PING_S,
            ping_timeout=PONG_S,
            close_timeout=CLOSE_S,
            max_size=MESSAGE_LIMIT,
            max_queue=_WAITING,
            logger=_log,
        )
    return WebSocket(connection, endpoint.url)


class WebSocket:
    def __init__(self, connection: ClientConnection, url: str) -> None:
        self._connection = connection
        self._url = url

    @property
    def is_open(self) -> bool:
        return self._connection.state is State.OPEN

    async def receive(self) -> bytes:
        """The next message. Raises when the connection has ended, however it did."""
        with _Translated(self._url):
            message = await self._connection.recv()
        if isinstance(message, str):
            raise BrokenError("api.garbled", f"{self._url} sends text where frames are due.")
        return message

    async def send(self, message: bytes) -> None:
        """Hand it over, whole. If this is cancelled or raises, it may have been sent."""
        with _Translated(self._url):
            await self._connection.send(message)

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S * 2):
            await self._connection.close()


class _Translated:
    """Inside it the exceptions of the package and of the network become ours."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        match error:
            case None:
                return
            case InvalidStatus():
                told = error.response
                raise error_of(told.status_code, bytes(told.body or b""), told.headers.get("Retry-After")) from error
            case ConnectionClosed() if error.rcvd is not None and error.rcvd.code in _REFUSED:
                why = error.rcvd.reason or error.rcvd.code
                raise BrokenError("api.garbled", f"{self._url} does not take what this client says: {why}") from error
            case ConnectionClosed() | InvalidHandshake() | EOFError():
                raise UnavailableError("api.cut_off", f"The connection to {self._url} was lost.") from error
            case InvalidURI():
                raise InvalidError("call.malformed", f"This cannot be asked of {self._url}: {error}") from error
            case WebSocketException():
                raise BrokenError("api.garbled", f"The answer of {self._url} makes no sense: {error}") from error
            case TimeoutError():
                raise DeadlineError("api.slow", f"{self._url} did not answer in time.") from error
            case OSError() if isinstance(fault := tls_fault(error), ssl.SSLError):
                raise UnavailableError(UNTRUSTED, say_tls(self._url, fault)) from error
            case OSError():
                raise UnavailableError(
                    "api.unreachable", f"Nobody answers at {self._url}. Is the stack up? Run `outlive up`."
                ) from error
