"""A small HTTP/1.1 client for nodes: kept connections, one request at a time on each, no more than a node needs.

httpx costs a millisecond a call; a command through the API has only a few. So bytes are parsed by httptools over
anyio's streams, and that is all. What breaks becomes `node.away` (unavailable) here; who is not who we were told
becomes `node.untrusted`, which asking again does not mend.
"""

import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from urllib.parse import quote

import anyio
import anyio.abc
import httptools
from anyio.streams.tls import TLSStream

from outlive.base import DeadlineError, OutliveError, UnavailableError
from outlive.machine.node_wire import NodeAddress, garbled
from outlive.machine.steady import steady

CONNECT_WITHIN_S = 5.0
SEND_WITHIN_S = 60.0  # one piece of a body
IDLE_LIMIT = 32  # connections kept per node
IDLE_S = 60.0
OPEN_LIMIT = 2_048  # connections in use, of all nodes
BUFFER_LIMIT = 64 * 1024 * 1024  # of an answer that is read whole
_CHUNK = 64 * 1024

_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


def away(address: NodeAddress, why: str) -> UnavailableError:
    return UnavailableError("node.away", f"The node at {address} does not answer ({why}); try again.")


@cache
def _trusted_by_host() -> ssl.SSLContext:
    return ssl.create_default_context()  # reads a file of authorities: once, not for each connection


async def dial(address: NodeAddress, tls: ssl.SSLContext | None) -> anyio.abc.ByteStream:
    """A connection to a node, within seconds."""
    try:
        with anyio.fail_after(CONNECT_WITHIN_S):
            if address.path:
                return steady(await anyio.connect_unix(address.path))
            stream = await anyio.connect_tcp(address.host, address.port)
            try:
                return await TLSStream.wrap(
                    stream,
                    server_side=False,
                    hostname=address.host,
                    ssl_context=tls or _trusted_by_host(),
                    standard_compatible=False,
                )
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise
    except TimeoutError:
        raise away(address, f"no connection within {CONNECT_WITHIN_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise UnavailableError(
            "node.untrusted",
            f"The node at {address} shows a certificate that is not trusted here: {error.verify_message}. Set "
            "node.tls_ca to the authority that signed it.",
        ) from error
    except ssl.SSLError as error:
        raise away(address, f"TLS: {error.reason}") from error
    except _GONE as error:
        raise away(address, str(error) or type(error).__name__) from error


class _Stale(Exception):  # noqa: N818  not an error: the other side had closed a kept connection
    pass


class Connection:
    """One connection. The parser calls the `on_` methods."""

    def __init__(self, stream: anyio.abc.ByteStream, address: NodeAddress) -> None:
        self._stream = stream
        self._address = address
        self._parser = httptools.HttpResponseParser(self)
        self._body: deque[bytes] = deque()
        self.status = 0
        self._stays_open = False
        self.is_complete = True
        self.is_sent = True  # the request, whole: else what comes next would be taken for the rest of it
        self.is_used = False  # before this request: then it may have been closed meanwhile
        self.idle_since = 0.0

    def on_message_begin(self) -> None:
        self.status = 0

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._stays_open = self._parser.should_keep_alive()  # the parser knows it only now

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True

    @property
    def may_be_kept(self) -> bool:
        return self.is_sent and self.is_complete and not self._body and self._stays_open

    async def send(self, data: bytes) -> None:
        try:
            with anyio.fail_after(SEND_WITHIN_S):
                await self._stream.send(data)
        except TimeoutError:
            raise DeadlineError("node.slow", f"The node at {self._address} takes nothing any more.") from None
        except _GONE as error:
            raise (_Stale() if self.is_used else away(self._address, str(error) or "it hung up")) from error

    async def begin(self, head_and_body: bytes) -> None:
        self.is_complete = False
        self.status = 0
        self._body.clear()
        await self.send(head_and_body)

    async def read_head(self) -> int:
        """The status of the answer."""
        while not self.status:
            await self._read()
        return self.status

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes; ends only if it is whole."""
        while True:
            while self._body:
                yield self._body.popleft()
            if self.is_complete:
                return
            await self._read()

    async def read_whole(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            size += len(piece)
            if size > BUFFER_LIMIT:
                raise garbled("it is too long")
            pieces.append(piece)
        return b"".join(pieces)

    async def _read(self) -> None:
        try:
            data = await self._stream.receive(_CHUNK)
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            raise garbled("it is not HTTP") from None
        except _GONE as error:
            if self.is_used and not self.status:
                raise _Stale from error
            raise away(self._address, "it hung up") from error

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)


class NodePool:
    """Connections to nodes, kept for the next call. Close it when nobody calls any more."""

    def __init__(self, token: str, tls: ssl.SSLContext | None = None) -> None:
        self._token = token
        self._tls = tls
        self._idle: dict[NodeAddress, deque[Connection]] = {}
        self._room = anyio.Semaphore(OPEN_LIMIT)

    @asynccontextmanager
    async def request(
        self,
        address: NodeAddress,
        method: str,
        target: str,
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        head_within_s: float,
        may_repeat: bool = True,
    ) -> AsyncIterator[Connection]:
        """One request; inside, its answer is there from the head on. A kept connection that turns out to be closed is
        replaced by a new one, if the request may be made again."""
        async with self._room:
            connection = await self._ask(address, method, target, body, head_within_s, may_repeat)
            try:
                yield connection
            finally:
                await self._give_back(address, connection)

    async def aclose(self) -> None:
        for kept in self._idle.values():
            while kept:
                await kept.popleft().aclose()

    async def _ask(
        self,
        address: NodeAddress,
        method: str,
        target: str,
        body: bytes | AsyncIterator[bytes],
        within_s: float,
        may_repeat: bool,
    ) -> Connection:
        head = self._head(method, target, body)
        # A body that is a stream can be sent once only, so it never goes over a connection that may be dead.
        is_fresh = not may_repeat or not isinstance(body, bytes)
        while True:
            connection = None if is_fresh else await self._take(address)
            connection = connection or Connection(await dial(address, self._tls), address)
            try:
                with anyio.fail_after(within_s):
                    if isinstance(body, bytes):
                        await connection.begin(head + body)
                        await connection.read_head()
                    else:
                        await connection.begin(head)
                        await _upload(connection, body)
                return connection
            except _Stale:
                await connection.aclose()
                is_fresh = True
            except TimeoutError:
                await connection.aclose()
                raise DeadlineError("node.slow", f"The node at {address} did not answer in {within_s:g} s.") from None
            except BaseException:
                await connection.aclose()
                raise

    def _head(self, method: str, target: str, body: bytes | AsyncIterator[bytes]) -> bytes:
        length = f"content-length: {len(body)}" if isinstance(body, bytes) else "transfer-encoding: chunked"
        return (
            f"{method} {target} HTTP/1.1\r\nhost: node\r\nauthorization: Bearer {self._token}\r\n{length}\r\n\r\n"
        ).encode("ascii")

    async def _take(self, address: NodeAddress) -> Connection | None:
        kept = self._idle.get(address)
        while kept:
            connection = kept.pop()
            if anyio.current_time() - connection.idle_since < IDLE_S:
                connection.is_used = True
                return connection
            await connection.aclose()
        return None

    async def _give_back(self, address: NodeAddress, connection: Connection) -> None:
        kept = self._idle.setdefault(address, deque())
        if connection.may_be_kept and len(kept) < IDLE_LIMIT:
            connection.idle_since = anyio.current_time()
            kept.append(connection)
        else:
            await connection.aclose()


async def _upload(connection: Connection, body: AsyncIterator[bytes]) -> None:
    """Send a body piece by piece while listening: an answer that comes before its end is the answer."""
    unsent: OutliveError | None = None  # why the body did not go out whole
    unheard: OutliveError | None = None
    connection.is_sent = False

    async def send_all() -> None:
        nonlocal unsent
        try:
            async for piece in body:
                if piece:
                    await connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            await connection.send(b"0\r\n\r\n")
            connection.is_sent = True
        except OutliveError as error:
            unsent = error
            if error.code != "node.away":  # the source has failed: nothing more will come
                group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(send_all)
        try:
            await connection.read_head()
        except OutliveError as error:
            unheard = error
        group.cancel_scope.cancel()
    if not connection.status:
        raise unsent or unheard or garbled("it did not come")


def to_query(values: Mapping[str, str | int | None]) -> str:
    """A query of plain ASCII; what is None is left out."""
    given = [f"{name}={quote(str(value), safe='/')}" for name, value in values.items() if value is not None]
    return f"?{'&'.join(given)}" if given else ""
