"""The feed of one process: subscriptions, the mirror of retained output, and the one poller beside a transport.

A transport (`backends/`) carries signals between processes: it hears for the hub and sends for it. The hub fans out.
Rule 1: a subscription costs memory only: no task, no timer, no connection. It waits on an event of its own.
Rule 2: a signal is decoded once per process, and all subscriptions are handed the same object.
Rule 3: what the transport does not tell, the poller finds in the log: soon while the transport is away, and now and
        then while it is there (a writer may die between appending and telling).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import anyio.abc

from outlive.base import ConversationId, OutliveError
from outlive.conversation.events import Delta, Event
from outlive.conversation.feed import (
    FOLLOWER_CHARACTERS,
    FOLLOWER_LIMIT,
    POLL_AWAY_S,
    POLL_SAFETY_S,
    Grown,
    Lagged,
    Signal,
    Subscription,
)
from outlive.conversation.tail import Tails

Heads = Callable[[Collection[ConversationId]], Awaitable[dict[ConversationId, int]]]
"""The heads of many conversations in one look: `EventLog.heads`."""

SNAPSHOT_WAIT_S = 1.0  # how long a first subscription waits for what was streamed before it
POLL_CHUNK = 500  # conversations in one look at the heads
POLL_DEADLINE_S = 5.0
_POLL_AWAY_INTERVAL_S = 0.8 * POLL_AWAY_S  # a look takes time too, and what was promised is how late it is in all

_log = logging.getLogger(__name__)

Told = Event | Delta | Grown | Lagged


class Transport(Protocol):
    """Carries signals between processes. It reports to its hub: `set_there`, `take_snapshot`, `hear`."""

    def publish(self, conversation: ConversationId, signals: Sequence[Signal]) -> None:
        """Take signals to send, in this order. Returns at once, never raises; bounded."""
        ...

    async def flush(self) -> None:
        """Wait until what was published has left, or the transport is away."""
        ...

    def follow(self, conversation: ConversationId) -> None:
        """Hear this conversation from now on: first `take_snapshot`, then `hear`; again after each reconnect."""
        ...

    def leave(self, conversation: ConversationId) -> None: ...


@asynccontextmanager
async def open_tasks() -> AsyncIterator[anyio.abc.TaskGroup]:
    """Tasks that run beside the body and end with it. An error of the body leaves as itself, not as a group of one."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__


class _Queue:
    """One subscription. When full it is emptied, and its follower is told that it lagged."""

    __slots__ = ("_characters", "_conversation", "_tails", "_waiting", "_wake")

    def __init__(self, conversation: ConversationId, tails: Tails) -> None:
        self._conversation = conversation
        self._tails = tails
        self._waiting: list[Told] = []
        self._characters = 0  # of what waits
        # A plain future: one is made for each wait of each follower, and an event costs five times as much.
        self._wake: asyncio.Future[None] | None = None

    async def receive(self) -> list[Told]:
        while not self._waiting:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        taken, self._waiting, self._characters = self._waiting, [], 0
        return taken

    def retained(self) -> list[Delta]:
        return self._tails.retained(self._conversation)

    def put(self, told: Sequence[Told], characters: int) -> None:
        self._characters += characters
        if len(self._waiting) + len(told) > FOLLOWER_LIMIT or self._characters > FOLLOWER_CHARACTERS:
            self._waiting, self._characters = [Lagged()], 0
        else:
            self._waiting.extend(told)
        if self._wake is not None and not self._wake.done():  # done: its waiter was cancelled
            self._wake.set_result(None)


class _Followed:
    """A conversation that somebody in this process follows."""

    __slots__ = ("has_snapshot", "head", "queues", "ready")

    def __init__(self) -> None:
        self.queues: set[_Queue] = set()
        self.head = 0  # how far the log reaches, as the subscriptions were last told
        self.ready = anyio.Event()  # nobody need wait for the first snapshot (any longer)
        self.has_snapshot = False

    def tell(self, told: Sequence[Told]) -> None:
        characters = sum(map(_size, told))
        for queue in self.queues:
            queue.put(told, characters)


def _size(told: Told) -> int:
    if isinstance(told, Event):
        return len(told.data_json)
    return len(told.text) if isinstance(told, Delta) else 0


class FeedHub:
    """Implements the `Feed` port over a transport. `run` has to run beside it, in the task group of its owner."""

    def __init__(self, transport: Transport, heads: Heads) -> None:
        self._transport = transport
        self._heads = heads
        self._followed: dict[ConversationId, _Followed] = {}
        self._tails = Tails()
        self._is_there = False
        self._has_tried = False  # before the first try to connect ended, nobody knows whether it is there
        self._poll_now = anyio.Event()
        self._can_poll = True

    # The port.

    def publish(self, conversation: ConversationId, signals: Sequence[Signal]) -> None:
        self._transport.publish(conversation, signals)

    async def flush(self) -> None:
        await self._transport.flush()

    @asynccontextmanager
    async def subscribe(self, conversation: ConversationId) -> AsyncIterator[Subscription]:
        followed = self._followed.get(conversation)
        if followed is None:
            followed = self._followed[conversation] = _Followed()
            if self._has_tried and not self._is_there:
                followed.ready.set()
            self._transport.follow(conversation)
            if len(self._followed) == 1:
                self._poll_now.set()
        queue = _Queue(conversation, self._tails)
        followed.queues.add(queue)
        try:
            with anyio.move_on_after(SNAPSHOT_WAIT_S):
                await followed.ready.wait()
            followed.ready.set()
            yield queue
        finally:
            followed.queues.discard(queue)
            if not followed.queues:
                del self._followed[conversation]
                self._tails.drop(conversation)
                self._transport.leave(conversation)

    # What the transport reports.

    def set_there(self, is_there: bool) -> None:
        """The transport is there, or away (also: could not be reached at first)."""
        if self._has_tried and is_there == self._is_there:
            return
        self._has_tried = True
        self._is_there = is_there
        if not is_there:
            for followed in self._followed.values():
                followed.ready.set()
            self._poll_now.set()

    def take_snapshot(self, conversation: ConversationId, signals: Iterable[Event | Delta | Grown]) -> None:
        """What was streamed before; from here on `hear` goes on without a gap."""
        followed = self._followed.get(conversation)
        if followed is None:
            return
        self._tails.drop(conversation)
        self._tails.fold(conversation, signals, keep=True)
        if followed.has_snapshot or followed.ready.is_set():
            followed.tell([Lagged()])  # they went on without it: signals may have been missed
        followed.has_snapshot = True
        followed.ready.set()

    def hear(self, conversation: ConversationId, signals: Sequence[Event | Delta | Grown]) -> None:
        followed = self._followed.get(conversation)
        if followed is None:
            return
        self._tails.fold(conversation, signals, keep=True)
        told: list[Told] = []
        for signal in signals:
            if isinstance(signal, Event):
                if signal.seq > followed.head:
                    followed.head = signal.seq
                # Without its payload an event is only the news that the log has grown.
                told.append(signal if signal.data_json else Grown(signal.seq))
            else:
                if isinstance(signal, Grown) and signal.head > followed.head:
                    followed.head = signal.head
                told.append(signal)
        followed.tell(told)

    # The poller.

    async def run(self) -> None:
        """Look at the heads of all followed conversations from time to time, for ever."""
        while True:
            self._poll_now = anyio.Event()
            if not self._followed:
                await self._poll_now.wait()
                continue
            started_at = anyio.current_time()
            await self._poll()
            interval_s = POLL_SAFETY_S if self._is_there else _POLL_AWAY_INTERVAL_S
            with anyio.move_on_after(max(0.0, started_at + interval_s - anyio.current_time())):
                await self._poll_now.wait()

    async def _poll(self) -> None:
        conversations = list(self._followed)
        for at in range(0, len(conversations), POLL_CHUNK):
            try:
                with anyio.fail_after(POLL_DEADLINE_S):
                    heads = await self._heads(conversations[at : at + POLL_CHUNK])
            except (OutliveError, TimeoutError) as error:
                if self._can_poll:
                    _log.warning("Followers wait: the log could not be looked at (%s). Trying again.", error)
                self._can_poll = False
                return
            self._can_poll = True
            for conversation, head in heads.items():
                followed = self._followed.get(conversation)
                if followed is not None and head > followed.head:
                    followed.head = head
                    followed.tell([Grown(head)])
