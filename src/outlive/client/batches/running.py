"""Running a batch: so many items at once, each a conversation with one turn, until all are over.

Why an item is never asked for twice, whenever and however often a run begins again:
  1. Its conversation and its message are made under keys that follow from the batch, the item and the attempt. For 24
     hours the server answers what it answered before.
  2. Its conversation says whose it is (`metadata`). A run that goes on looks first which of them are there, and a
     message is sent only into one that has none. So it holds for ever, and the record on the disk is a convenience.

Rule: what may heal (a stack that is away) is waited for, with a bound, and said. A turn that waits, for a person or for
      the time, is set aside and never holds up the others. At the end those that wait for the time are waited for, and
      those that wait for a person are looked at once more, and reported.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

import anyio

from outlive.base import OutliveError
from outlive.client.batches.collecting import Collected
from outlive.client.batches.items import Item
from outlive.client.batches.plan import Counts, Line, Task
from outlive.client.batches.record import Record
from outlive.client.client import AsyncClient
from outlive.client.conversations import AsyncConversation
from outlive.client.transport import Backoff, may_heal

LOOK_EVERY_S = 5.0  # at a conversation of which nothing is heard: does it wait for somebody?
_SKEW = timedelta(hours=1)  # that the clocks of several API hosts may differ
_ENDS_ALL = frozenset({"unauthenticated", "denied"})  # no item would fare better


@dataclass(frozen=True, slots=True)
class Options:
    parallel: int = 8
    every: int = 30  # items after which the record is synced
    every_s: float = 30.0  # and at least so often
    patience_s: float = 600.0  # with a stack that is away


class Standing(NamedTuple):
    """How a run stands, in items."""

    items: int
    done: int
    failed: int
    waiting: int


class Watch(Protocol):
    """Who is told how it goes."""

    def told(self, standing: Standing) -> None:
        """Something is over, or was set aside."""
        ...

    def away(self, error: OutliveError) -> None:
        """The stack does not answer. Said once each time it goes away."""
        ...

    def back(self) -> None: ...


class BatchRun:
    def __init__(
        self, client: AsyncClient, record: Record, items: Sequence[Item], watch: Watch, options: Options
    ) -> None:
        self._client = client
        self._record = record
        self._items = items
        self._watch = watch
        self._options = options
        self._known: dict[tuple[str, int], str] = {}  # conversation of an attempt at an item
        self._waiting: dict[str, tuple[Task, Line]] = {}
        self._failed = 0
        self._heard_at: dict[object, float] = {}  # by whom of us
        self._is_away = False

    async def run(self) -> Counts:
        """Do what is left; how the batch stands then. May be left at any moment and begun again."""
        tasks = self._record.settle(self._items).tasks
        self._failed = self._record.counts(len(self._items)).failed
        self._tell()
        if tasks:
            await self._patiently(self._find, None)
            try:
                async with self._flushing():
                    await self._do_all(tasks, "aside")
                    await self._do_all([task for task, _ in self._waiting.values()], "person")
                    await self._do_all([task for task, _ in self._waiting.values()], "look")
            finally:
                self._record.put_aside(line for _, line in self._waiting.values())
                self._record.flush()
        else:
            self._record.put_aside(())
        self._tell()
        return self._record.counts(len(self._items))

    # ── one after the other ──

    async def _do_all(self, tasks: Sequence[Task], leave: "Leave") -> None:
        queue = iter(tasks)
        async with anyio.create_task_group() as group:
            for _ in range(self._options.parallel):
                group.start_soon(self._work, queue, leave)

    async def _work(self, queue: Iterator[Task], leave: "Leave") -> None:
        for task in queue:
            await self._do(task, leave)

    async def _do(self, task: Task, leave: "Leave") -> None:
        found: list[Collected] = []

        async def ask() -> None:
            found.append(await self._ask(task, leave))

        try:
            await self._patiently(ask, task.name)
        except OutliveError as error:
            if may_heal(error) or error.kind in _ENDS_ALL:
                raise
            found.append(Collected.refused(error, self._known.get(task.name)))
        self._take(task, found[-1])

    def _take(self, task: Task, found: Collected) -> None:
        line = found.line(task)
        self._waiting.pop(task.item.key, None)
        if found.outcome is None:
            self._waiting[task.item.key] = (task, line)
        else:
            self._record.add(line)
            self._failed += found.outcome != "done"
            if self._record.unwritten >= self._options.every:
                self._record.flush()
        self._tell()

    def _tell(self) -> None:
        self._watch.told(Standing(len(self._items), len(self._record.results), self._failed, len(self._waiting)))

    # ── one item ──

    async def _ask(self, task: Task, leave: "Leave") -> Collected:
        conversation = await self._conversation(task)
        collected = Collected(conversation.id)
        if leave == "look":
            async for event in conversation.events():
                collected.take(event)
            return collected
        following = conversation.follow(deltas=False, give_up_after_s=0)
        try:
            while collected.outcome is None:
                is_silent = True
                with anyio.move_on_after(LOOK_EVERY_S):
                    events = await following.next_events()
                    is_silent = False
                    self._heard(task.name)
                    for event in events:
                        collected.take(event)
                if is_silent or collected.question is not None:
                    is_waiting = (await conversation.refresh()).state == "waiting"
                    self._heard(task.name)
                    if is_waiting and (leave == "aside" or collected.question is not None):
                        break
        finally:
            with anyio.CancelScope(shield=True):
                await following.aclose()
        return collected

    async def _conversation(self, task: Task) -> AsyncConversation:
        """The conversation of this attempt at the item, with its message in it. Made, or found."""
        header, item = self._record.header, task.item
        key = f"{header.batch}/{item.key}/{task.attempt}"
        if (known := self._known.get(task.name)) is not None:
            conversation = await self._client.conversations.get(known)
            if await _has_message(conversation):
                return conversation
        else:
            asked = {name: item.asked.get(name) or getattr(header, name) for name in ("agent", "model", "environment")}
            metadata = {**item.asked.get("metadata", {}), "batch": header.batch, "item": item.key}
            metadata["attempt"] = task.attempt
            conversation = await self._client.conversations.create(
                **asked, title=item.title, metadata=metadata, idempotency_key=f"{key}/conversation"
            )
            self._known[task.name] = conversation.id
        await conversation.send(item.text, idempotency_key=f"{key}/message")
        self._heard(task.name)
        return conversation

    async def _find(self) -> None:
        """The conversations of this batch that are on the server, also those that nobody has written down."""
        header = self._record.header
        oldest = datetime.fromisoformat(header.since) - _SKEW if header.since is not None else None
        for archived in (False, True):
            async for page in self._client.conversations.pages(archived=archived):
                self._heard(None)
                for each in page:
                    # A fork of one has inherited what its metadata say, and is somebody else's.
                    if each.metadata.get("batch") == header.batch and each.parent is None:
                        self._known[str(each.metadata.get("item")), int(each.metadata.get("attempt", 1))] = each.id
                last = page[-1].created_at if page else None
                if oldest is not None and last is not None and datetime.fromisoformat(last) < oldest:
                    break

    # ── a stack that is away ──

    async def _patiently(self, act: "Act", who: object) -> None:
        """Do it; again while the stack is away, for as long as our patience lasts since it was heard."""
        backoff = Backoff()
        since: float | None = None
        while True:
            try:
                return await act()
            except OutliveError as error:
                now = anyio.current_time()
                since = max(now if since is None else since, self._heard_at.get(who, 0.0))
                if not may_heal(error) or now - since > self._options.patience_s:
                    raise
                wait_s = backoff.wait_s(error.retry_after_s)
                if not self._is_away:
                    self._is_away = True
                    self._watch.away(error)
            await anyio.sleep(wait_s)

    def _heard(self, who: object) -> None:
        self._heard_at[who] = anyio.current_time()
        if self._is_away:
            self._is_away = False
            self._watch.back()

    # ── the record ──

    @asynccontextmanager
    async def _flushing(self) -> AsyncIterator[None]:
        """The record is synced now and then meanwhile, and at the end, whatever that is."""

        async def keep_flushing() -> None:
            while True:
                await anyio.sleep(self._options.every_s)
                self._record.flush()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(keep_flushing)
                yield
                group.cancel_scope.cancel()
        finally:
            self._record.flush()


Leave = Literal["aside", "person", "look"]
"""A turn that is not over is left as soon as it waits; only when it waits for a person; at once."""


class Act(Protocol):
    async def __call__(self) -> None: ...


async def _has_message(conversation: AsyncConversation) -> bool:
    if conversation.head <= 1:
        return False
    async for event in conversation.events():
        if event.type == "message.sent":
            return True
    return False
