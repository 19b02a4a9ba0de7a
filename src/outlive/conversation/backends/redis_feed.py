"""The feed over Redis Streams, for many hosts: a stream per conversation, bounded, gone an hour after its last signal.

One connection sends; others read, each for a group of conversations, so that thousands of them need few connections. A
reader waits in XREAD. It also waits on a key of its own: that is how it is woken when its group has changed, without
cutting a blocked command off.
While Redis is away writers go on (what they publish waits in the outbox, bounded) and the hub polls the log. A batch
that was under way when Redis went is sent again; followers bear doubles.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

from outlive.base import ConversationId, InvalidError, UnavailableError
from outlive.conversation.backends.signals import Heard, Outbox, decode_signals
from outlive.conversation.feed import Signal
from outlive.conversation.hub import FeedHub, Heads, open_tasks
from outlive.conversation.tail import Tail
from outlive.storage.redis import Command, RedisConnection, RedisServer, Refused

GROUP_LIMIT = 256  # conversations per reading connection

_PREFIX = b"outlive:feed:"
_WAKE_PREFIX = b"outlive:feed-wake:"
_LENGTH = 4096  # entries kept of a conversation
_LENGTH_IF_BIG = 256  # ... once they are big, so that a stream stays below some 64 MiB
_BIG = 16 * 1024
_EXPIRY_MS = 3_600_000
_WAKE_EXPIRY_MS = 60_000
_PAGE = 128  # entries in one reply
_SNAPSHOTS = 32  # conversations in one look back
_BLOCK_S = 2.0
_DEADLINE_S = 3.0
_BACKOFF_FIRST_S = 0.05
_BACKOFF_LAST_S = 1.0
_SEND_SIZE = 1024 * 1024
_FLUSH_DEADLINE_S = 1.0

_log = logging.getLogger(__name__)


def key_of(conversation: ConversationId) -> bytes:
    return _PREFIX + conversation.encode()


class RedisTransport:
    def __init__(self, server: RedisServer, tasks: anyio.abc.TaskGroup) -> None:
        self._server = server
        self._tasks = tasks
        self._outbox = Outbox()
        self._batch: list[Command] = []  # under way, and sent again if Redis goes meanwhile
        self._wakes: set[bytes] = set()
        self._has_work = anyio.Event()
        self._drained = anyio.Event()
        self._groups: dict[ConversationId, _Group] = {}
        self._roomy: set[_Group] = set()
        self._away: set[object] = set()  # who of the sender and the groups has no connection
        self.hub: FeedHub  # set right after both were made

    def publish(self, conversation: ConversationId, signals: Sequence[Signal]) -> None:
        self._outbox.put(conversation, signals)
        self._has_work.set()

    async def flush(self) -> None:
        with anyio.move_on_after(_FLUSH_DEADLINE_S):
            while (self._outbox or self._batch) and self not in self._away:
                if self._drained.is_set():
                    self._drained = anyio.Event()
                await self._drained.wait()

    def follow(self, conversation: ConversationId) -> None:
        group = next(iter(self._roomy), None)
        if group is None:
            group = _Group(self)
            self._roomy.add(group)
            self._tasks.start_soon(group.run)
        self._groups[conversation] = group
        group.add(conversation)
        if group.size >= GROUP_LIMIT:
            self._roomy.discard(group)
        self._wake(group)

    def leave(self, conversation: ConversationId) -> None:
        group = self._groups.pop(conversation)
        group.remove(conversation)
        if group.size:
            self._roomy.add(group)  # it need not be woken: it hears a little more, and nobody listens
        else:
            self._roomy.discard(group)
            group.scope.cancel()

    def _wake(self, group: "_Group") -> None:
        self._wakes.add(group.wake_key)
        self._has_work.set()

    async def keep_connected(self, part: object, serve: Callable[[RedisConnection], Awaitable[None]]) -> None:
        """Run `serve` over a connection of its own, and over a new one whenever that is lost, for ever."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            started_at = anyio.current_time()
            try:
                async with self._server.connect() as connection:
                    self.report(part, is_there=True)
                    await serve(connection)
            except UnavailableError as error:
                if part not in self._away:
                    _log.warning("The feed is away: %s Trying again.", error.message)
                self.report(part, is_there=False)
            if anyio.current_time() - started_at > _BACKOFF_LAST_S:
                backoff_s = _BACKOFF_FIRST_S
            await anyio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_LAST_S)

    def report(self, part: object, *, is_there: bool) -> None:
        if is_there:
            self._away.discard(part)
        else:
            self._away.add(part)
            self._drained.set()
        self.hub.set_there(not self._away)

    async def run(self) -> None:
        """Send what is published, for ever."""
        await self.keep_connected(self, self._send)

    async def _send(self, connection: RedisConnection) -> None:
        while True:
            self._has_work = anyio.Event()
            if not self._batch:
                self._batch = self._take()
            if not self._batch:
                await self._has_work.wait()
                continue
            replies = await connection.call(self._batch, _DEADLINE_S)
            # What Redis refuses is dropped, not sent again: one bad key would hold up all conversations for ever.
            self._batch = []
            self._drained.set()
            _check(replies)

    def _take(self) -> list[Command]:
        batch: list[Command] = []
        for key in self._wakes:
            batch.append((b"XADD", key, b"MAXLEN", 1, b"*", b"w", b""))
            batch.append((b"PEXPIRE", key, _WAKE_EXPIRY_MS))
        self._wakes.clear()
        for conversation, body in self._outbox.take(_SEND_SIZE):
            key = key_of(conversation)
            length = _LENGTH if len(body) < _BIG else _LENGTH_IF_BIG
            batch.append((b"XADD", key, b"MAXLEN", b"~", length, b"*", b"s", body))
            batch.append((b"PEXPIRE", key, _EXPIRY_MS))
        return batch


class _Group:
    """Some of the followed conversations, read over one connection."""

    def __init__(self, owner: RedisTransport) -> None:
        self._owner = owner
        self._fresh: dict[ConversationId, None] = {}  # asked for, not yet looked back at
        self._read: dict[ConversationId, bytes] = {}  # id of the last entry that was taken
        self.wake_key = _WAKE_PREFIX + secrets.token_hex(16).encode()
        self._woken = b"0-0"
        self.scope = anyio.CancelScope()

    @property
    def size(self) -> int:
        return len(self._fresh) + len(self._read)

    def add(self, conversation: ConversationId) -> None:
        self._fresh[conversation] = None

    def remove(self, conversation: ConversationId) -> None:
        self._fresh.pop(conversation, None)
        self._read.pop(conversation, None)

    async def run(self) -> None:
        with self.scope:
            await self._owner.keep_connected(self, self._listen)
        self._owner.report(self, is_there=True)  # it is not missed

    async def _listen(self, connection: RedisConnection) -> None:
        self._fresh = dict.fromkeys([*self._read, *self._fresh])
        self._read = {}
        self._woken = b"0-0"
        while True:
            while self._fresh:
                await self._look_back(connection, list(self._fresh)[:_SNAPSHOTS])
            for name, entries in await self._wait(connection) or ():
                self._take(name, entries)

    async def _look_back(self, connection: RedisConnection, conversations: list[ConversationId]) -> None:
        """Read these streams from their beginning to their end, a page at a time, for what is still open in them."""
        tails = {conversation: Tail() for conversation in conversations}
        last = dict.fromkeys(conversations, b"0-0")
        open_ = conversations
        while open_:
            asked = [(b"XRANGE", key_of(one), b"(" + last[one], b"+", b"COUNT", _PAGE) for one in open_]
            pages = dict(zip(open_, _check(await connection.call(asked, _DEADLINE_S)), strict=True))
            for conversation, page in pages.items():
                for id, fields in page:
                    tails[conversation].fold(_signals(fields))
                    last[conversation] = id
            open_ = [conversation for conversation, page in pages.items() if len(page) == _PAGE]
        for conversation in conversations:
            if conversation in self._fresh:  # else it was left meanwhile
                del self._fresh[conversation]
                self._read[conversation] = last[conversation]
                self._owner.hub.take_snapshot(conversation, tails[conversation].retained())

    async def _wait(self, connection: RedisConnection) -> list[Any] | None:
        command: list[bytes | str | int] = [
            b"XREAD",
            b"COUNT",
            _PAGE,
            b"BLOCK",
            int(_BLOCK_S * 1000),
            b"STREAMS",
            self.wake_key,
        ]
        command += map(key_of, self._read)
        command.append(self._woken)
        command += self._read.values()
        replies: list[list[Any] | None] = _check(await connection.call([command], _BLOCK_S + _DEADLINE_S))
        return replies[0]

    def _take(self, name: bytes, entries: list[Any]) -> None:
        last: bytes = entries[-1][0]
        if name == self.wake_key:
            self._woken = last
            return
        conversation = ConversationId(name.removeprefix(_PREFIX).decode())
        if conversation not in self._read:
            return  # left meanwhile, and perhaps asked for again: then it is looked back at
        self._read[conversation] = last
        signals = [signal for _, fields in entries for signal in _signals(fields)]
        self._owner.hub.hear(conversation, signals)


def _check(replies: list[Any]) -> list[Any]:
    """A refusal is as good as no connection: after a failover a new one may reach a Redis that does not refuse."""
    for reply in replies:
        if isinstance(reply, Refused):
            raise UnavailableError("redis.refused", f"Redis refused a command of the feed ({reply.word}).")
    return replies


def _signals(fields: list[bytes]) -> list[Heard]:
    try:
        return decode_signals(fields[1])
    except (InvalidError, IndexError):
        _log.warning("An entry in a stream of the feed makes no sense and was left out.")
        return []


@asynccontextmanager
async def open_redis_feed(url: str, heads: Heads) -> AsyncIterator[FeedHub]:
    """The feed of this process over the Redis at `url`, whether or not that is there yet."""
    server = RedisServer(url)
    async with open_tasks() as tasks:
        transport = RedisTransport(server, tasks)
        hub = transport.hub = FeedHub(transport, heads)
        tasks.start_soon(hub.run)
        tasks.start_soon(transport.run)
        try:
            yield hub
        finally:
            with anyio.CancelScope(shield=True):
                await transport.flush()
