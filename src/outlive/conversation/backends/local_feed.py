"""The feed of one process over the local broker: one connection, made again by itself for ever.

While the broker is away writers go on (what they publish waits in the outbox, bounded) and the hub polls the log. When
it is back, everything that is followed is asked for again, and each snapshot tells the subscriptions that they may have
missed something.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio

from outlive.base import ConversationId, InvalidError
from outlive.conversation.backends.broker import short_address
from outlive.conversation.backends.signals import Frames, Heard, Outbox, frame, parse, read_signals
from outlive.conversation.feed import Signal
from outlive.conversation.hub import FeedHub, Heads, open_tasks

_BACKOFF_FIRST_S = 0.05
_BACKOFF_LAST_S = 1.0
_CONNECT_DEADLINE_S = 1.0
_FLUSH_DEADLINE_S = 1.0
_CLOSE_DEADLINE_S = 1.0
_SEND_SIZE = 1024 * 1024

_log = logging.getLogger(__name__)


class LocalTransport:
    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path
        self._outbox = Outbox()
        self._followed: set[ConversationId] = set()
        self._connection: _Connection | None = None
        self._is_away = False  # known to be: not before the first try
        self._is_scheduled = False
        self._drained = anyio.Event()
        self.hub: FeedHub  # set right after both were made

    def publish(self, conversation: ConversationId, signals: Sequence[Signal]) -> None:
        self._outbox.put(conversation, signals)
        self._schedule()

    async def flush(self) -> None:
        with anyio.move_on_after(_FLUSH_DEADLINE_S):
            while not self._is_away and (self._outbox or (self._connection is not None and self._connection.is_paused)):
                if self._drained.is_set():
                    self._drained = anyio.Event()
                await self._drained.wait()

    def follow(self, conversation: ConversationId) -> None:
        self._followed.add(conversation)
        if self._connection is not None:
            self.send()  # what was published before goes first
            self._connection.write(_request("s", conversation))

    def leave(self, conversation: ConversationId) -> None:
        self._followed.discard(conversation)
        if self._connection is not None:
            self._connection.forget(conversation)
            self._connection.write(_request("u", conversation))

    def _schedule(self) -> None:
        # Sent at the end of this round of the event loop: what is published in one go leaves in one go.
        if self._connection is not None and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._is_scheduled = False
        self.send()

    def send(self) -> None:
        """Send what waits, as long as the broker takes it."""
        connection = self._connection
        while connection is not None and self._outbox and not connection.is_paused:
            taken = self._outbox.take(_SEND_SIZE)
            connection.write(
                b"".join(frame(b'["p","%s",%s]' % (name.encode(), body)) for name, body in taken),
            )
        self._drained.set()

    def lost(self) -> None:
        self._connection = None
        self._is_away = True
        self._drained.set()

    async def run(self) -> None:
        """Keep a connection to the broker, for ever."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            connection = await self._connect()
            if connection is None:
                self.lost()
                self.hub.set_there(False)
            else:
                started_at = anyio.current_time()
                try:
                    await self._stay(connection)
                finally:
                    await connection.close()
                if anyio.current_time() - started_at > _BACKOFF_LAST_S:
                    backoff_s = _BACKOFF_FIRST_S
            await anyio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_LAST_S)

    async def _connect(self) -> "_Connection | None":
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(_CONNECT_DEADLINE_S):
                client = _connected_socket(self._path)
                _, connection = await loop.create_unix_connection(lambda: _Connection(self), sock=client)
                return connection
        except (OSError, TimeoutError):
            return None

    async def _stay(self, connection: "_Connection") -> None:
        if connection.closed.is_set():
            return
        self._connection = connection
        self._is_away = False
        connection.write(b"".join(_request("s", conversation) for conversation in self._followed))
        self.hub.set_there(True)
        self.send()
        try:
            await connection.closed.wait()
        finally:
            self.lost()
            self.hub.set_there(False)


class _Connection(asyncio.Protocol):
    def __init__(self, owner: LocalTransport) -> None:
        self._owner = owner
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._snapshots: dict[ConversationId, list[Heard]] = {}  # those that came in part
        self.is_paused = False
        self.closed = anyio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's and uvloop's own transports do not all inherit from asyncio.Transport
        self._transport = cast("asyncio.Transport", transport)
        # Paused as soon as the kernel takes no more: what waits longer waits in the outbox, where it is merged.
        self._transport.set_write_buffer_limits(high=0)

    def write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    def forget(self, conversation: ConversationId) -> None:
        self._snapshots.pop(conversation, None)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                self._take(body)
        except InvalidError as error:
            _log.warning("The broker of the feed sent garbage (%s). Connecting again.", error.message)
            self._abort()

    def _take(self, body: bytes) -> None:
        hub = self._owner.hub
        match parse(body):
            case ["p", str(name), rows]:
                hub.hear(ConversationId(name), read_signals(rows))
            case ["t", str(name), rows, bool(is_last)]:
                conversation = ConversationId(name)
                retained = self._snapshots.pop(conversation, []) + read_signals(rows)
                if is_last:
                    hub.take_snapshot(conversation, retained)
                else:
                    self._snapshots[conversation] = retained
            case _:
                raise InvalidError("feed.garbage", "This is not a frame.")

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._owner.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.lost()
        self.closed.set()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_DEADLINE_S, shield=True):
            self._abort()
            await self.closed.wait()


def _request(verb: str, conversation: ConversationId) -> bytes:
    return frame(f'["{verb}","{conversation}"]'.encode())


def _connected_socket(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.setblocking(False)
        with short_address(path) as address:
            code = client.connect_ex(address)  # a unix socket connects at once or not at all
        if code:
            raise OSError(code, errno.errorcode.get(code, "?"))
    except OSError:
        client.close()
        raise
    return client


@asynccontextmanager
async def open_local_feed(socket_path: Path, heads: Heads) -> AsyncIterator[FeedHub]:
    """The feed of this process over the broker at `socket_path`, whether or not that is there yet."""
    transport = LocalTransport(socket_path)
    hub = transport.hub = FeedHub(transport, heads)
    async with open_tasks() as tasks:
        tasks.start_soon(hub.run)
        tasks.start_soon(transport.run)
        try:
            yield hub
        finally:
            with anyio.CancelScope(shield=True):
                await transport.flush()
