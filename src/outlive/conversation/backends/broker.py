"""The local broker: carries signals between the processes of one host over a unix socket. Run by one of them (the API).

Frames are four bytes of length and a JSON array. From a client: `["p", conversation, signals]` publish,
`["s", conversation]` subscribe, `["u", conversation]` unsubscribe. To a client: `["t", conversation, deltas, is_last]`
what is retained, then each `["p", ...]` just as it was published.

Rule 1: nobody waits for anybody. A client that does not read is cut off; it comes back and gets what is retained.
Rule 2: what a client sends is checked whole before it is passed on; garbage cuts off that client and nobody else.
Rule 3: only processes of the same user get in: the directory is closed to others and the peer's uid is asked for.
"""

import asyncio
import errno
import fcntl
import logging
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import cast

import anyio
import anyio.lowlevel
import orjson

from outlive.base import ConflictError, ConversationId, DeniedError, InvalidError, is_id
from outlive.conversation.backends.signals import BODY_SIZE, Frames, encode_signals, frame, parse, read_signals
from outlive.conversation.events import Delta
from outlive.conversation.tail import Tails

CUT_OFF_AT = 8 * 1024 * 1024  # bytes that wait for one client
_SNAPSHOT_AT = 1024 * 1024  # snapshots are sent while less than this waits, so that many of them cut nobody off
_SUBSCRIPTION_LIMIT = 100_000
_LOCK_WAIT_S = 5.0
_CLOSE_WAIT_S = 2.0
_ADDRESS_LIMIT = 107

_log = logging.getLogger(__name__)


class Broker:
    def __init__(self) -> None:
        self.peers: set[_Peer] = set()
        self._followers: dict[ConversationId, set[_Peer]] = {}
        self._tails = Tails()
        self._touched: set[_Peer] = set()

    def take(self, peer: "_Peer", body: bytes) -> None:
        """Do what one frame asks for; `invalid` if it makes no sense."""
        match parse(body):
            case ["p", str(name), rows]:
                self._publish(_conversation(name), rows, body)
            case ["s", str(name)]:
                peer.ask(_conversation(name))
            case ["u", str(name)]:
                self.leave(peer, _conversation(name))
            case _:
                raise InvalidError("feed.garbage", "This is not a request.")

    def _publish(self, conversation: ConversationId, rows: object, body: bytes) -> None:
        signals = read_signals(rows)
        followers = self._followers.get(conversation)
        self._tails.fold(conversation, signals, keep=followers is not None)
        if followers:
            framed = frame(body)
            for peer in followers:
                peer.outgoing.append(framed)
            self._touched |= followers

    def follow(self, peer: "_Peer", conversation: ConversationId) -> None:
        """Send what is retained, and from here on what is published: there is nothing in between."""
        self._followers.setdefault(conversation, set()).add(peer)
        peer.follows.add(conversation)
        for body in _snapshot(conversation, self._tails.retained(conversation)):
            peer.outgoing.append(frame(body))

    def leave(self, peer: "_Peer", conversation: ConversationId) -> None:
        peer.asked.pop(conversation, None)
        peer.follows.discard(conversation)
        followers = self._followers.get(conversation)
        if followers is not None:
            followers.discard(peer)
            if not followers:
                del self._followers[conversation]
                self._tails.release(conversation)

    def deliver(self) -> None:
        touched, self._touched = self._touched, set()
        for peer in touched:
            peer.send()

    def forget(self, peer: "_Peer") -> None:
        for conversation in list(peer.follows):
            self.leave(peer, conversation)
        self.peers.discard(peer)
        self._touched.discard(peer)


def _conversation(name: str) -> ConversationId:
    if not is_id(name, "conv"):
        raise InvalidError("feed.garbage", "This is not a conversation.")
    return ConversationId(name)


def _snapshot(conversation: ConversationId, deltas: list[Delta]) -> Iterator[bytes]:
    """The retained deltas in bodies of moderate size; the last one says so."""
    part: list[Delta] = []
    characters = 0
    for delta in deltas:
        if part and characters + len(delta.text) > BODY_SIZE:
            yield snapshot_body(conversation, part, is_last=False)
            part, characters = [], 0
        part.append(delta)
        characters += len(delta.text)
    yield snapshot_body(conversation, part, is_last=True)


def snapshot_body(conversation: ConversationId, deltas: list[Delta], *, is_last: bool) -> bytes:
    return b"".join(
        (b'["t","', conversation.encode(), b'",', encode_signals(deltas), b",", orjson.dumps(is_last), b"]")
    )


class _Peer(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self.outgoing: list[bytes] = []
        self.asked: dict[ConversationId, None] = {}  # subscriptions that wait for their snapshot, in order
        self.follows: set[ConversationId] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's and uvloop's own transports do not all inherit from asyncio.Transport
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_SNAPSHOT_AT, low=0)
        if _peer_uid(self._transport.get_extra_info("socket")) != os.geteuid():
            self.cut("it belongs to another user")
            return
        self._broker.peers.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                if self._transport is None:
                    return
                self._broker.take(self, body)
        except InvalidError as error:
            self.cut(f"it sent garbage: {error.message}")
        finally:
            self._broker.deliver()

    def ask(self, conversation: ConversationId) -> None:
        if len(self.follows) + len(self.asked) >= _SUBSCRIPTION_LIMIT:
            raise InvalidError("feed.garbage", "Too many subscriptions.")
        self._broker.leave(self, conversation)  # asked again: starts afresh
        self.asked[conversation] = None
        self.send()

    def send(self) -> None:
        """Write what waits, in one go, then as many snapshots as there is room for."""
        transport = self._transport
        while transport is not None:
            if self.outgoing:
                waiting, self.outgoing = self.outgoing, []
                transport.write(b"".join(waiting))
            size = transport.get_write_buffer_size()
            if size > CUT_OFF_AT:
                self.cut("it does not read")
                return
            if not self.asked or size > _SNAPSHOT_AT:
                return
            conversation = next(iter(self.asked))
            del self.asked[conversation]
            self._broker.follow(self, conversation)

    def resume_writing(self) -> None:
        self.send()

    def cut(self, why: str) -> None:
        if self._transport is not None:
            _log.warning("A client of the feed was cut off: %s.", why)
            self._transport.abort()
            self._transport = None
        self.outgoing.clear()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._broker.forget(self)


def _peer_uid(peer: socket.socket) -> int:
    layout = "3i"
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(layout))
    return int(struct.unpack(layout, credentials)[1])


@asynccontextmanager
async def open_broker(socket_path: Path) -> AsyncIterator[Broker]:
    """Serve at `socket_path` while inside. `conflict` if a living broker is there; a dead one's socket is replaced."""
    _ensure_directory(socket_path.parent)
    broker = Broker()
    loop = asyncio.get_running_loop()
    # The address is kept valid to the end: asyncio may look at it again when it closes the server.
    with short_address(socket_path) as address:
        async with _locked(socket_path.parent):
            listener = _bind(socket_path, address)
            inode = os.stat(socket_path).st_ino
        server = await loop.create_unix_server(lambda: _Peer(broker), sock=listener)
        try:
            yield broker
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    async with _locked(socket_path.parent):
                        _remove(socket_path, inode)
                finally:
                    await _close(server, broker)


async def _close(server: asyncio.AbstractServer, broker: Broker) -> None:
    server.close()
    with anyio.move_on_after(_CLOSE_WAIT_S):
        while broker.peers:
            for peer in broker.peers:
                peer.close()
            await anyio.lowlevel.checkpoint()
        await server.wait_closed()


def _ensure_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise DeniedError(
            "feed.directory_open",
            f"The directory {str(directory)!r} holds the feed's socket, so it must be yours and closed to others: "
            "run chmod 700 on it.",
        )


@asynccontextmanager
async def _locked(directory: Path) -> AsyncIterator[None]:
    """Be the only one that looks at or changes the socket file: two brokers may start or stop at the same moment.

    The directory itself is locked, so that no lock file stays behind; the lock dies with the process.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = anyio.current_time() + _LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if anyio.current_time() > deadline:
                    raise ConflictError(
                        "feed.broker_locked", f"Somebody else is setting up {str(directory)!r}; try again."
                    ) from None
                await anyio.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _bind(path: Path, address: str) -> socket.socket:
    if path.exists() or path.is_symlink():
        _remove_dead(path, address)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(address)
        path.chmod(0o600)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_dead(path: Path, address: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(address)
    if code in (errno.ECONNREFUSED, errno.ENOENT) and (path.is_socket() or not path.exists()):
        path.unlink(missing_ok=True)
        return
    raise ConflictError("feed.broker_lives", f"A broker lives at {str(path)!r} already, or something else is there.")


def _remove(path: Path, inode: int) -> None:
    try:
        if os.lstat(path).st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        pass


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    """An address for `path` that fits a socket, however deep the path is. Valid while inside."""
    if len(os.fsencode(path)) <= _ADDRESS_LIMIT:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
