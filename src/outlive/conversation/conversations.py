"""The conversation layer as the rest of the house uses it: log, catalog, blobs and feed put together.

Order of an append: big payloads to the object store, then the log, then the feed. Whatever dies in between, the log has
all of it or nothing, and a follower that was not told reads the log (`follower.py`).
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
from pydantic import JsonValue

from outlive.base import (
    Clock,
    ConversationId,
    CrashPoint,
    InvalidError,
    MessageId,
    NotFoundError,
    OperationId,
    TurnId,
    derive,
    reach,
    to_text,
)
from outlive.conversation.blobs import INLINE_LIMIT, Blobs
from outlive.conversation.events import (
    Attachment,
    ConversationArchived,
    ConversationCreated,
    Delta,
    Event,
    MessageHurried,
    MessageSent,
    NewEvent,
    Parent,
)
from outlive.conversation.feed import Feed, Grown, Lagged, Subscription
from outlive.conversation.follower import Follower, Frame
from outlive.conversation.log import Append, Appended, Catalog, Conversation, EventLog
from outlive.conversation.position import Position
from outlive.conversation.projection import Transcript
from outlive.conversation.upcast import upcast

PAGE = 1_000  # events read at once while catching up
_CACHED_TRANSCRIPTS = 128
_CACHED_CHARACTERS = 32 * 1024 * 1024  # of payloads that cached transcripts were folded from
_BLOBS_AT_ONCE = 4
_WHOLE_LIMIT = 16 * 1024 * 1024  # bytes of big payloads in one read: then the read ends, so that memory is bounded


Events = list[Event]  # named here, since `Conversations.list` hides the builtin below it


class Sent(NamedTuple):
    message: MessageId
    turn: TurnId
    seq: int


class Conversations:
    def __init__(self, log: EventLog, catalog: Catalog, blobs: Blobs, feed: Feed, clock: Clock) -> None:
        self.clock = clock
        self.blobs = blobs
        self._log = log
        self._catalog = catalog
        self._feed = feed
        self._transcripts: OrderedDict[ConversationId, tuple[Transcript, int]] = OrderedDict()  # and its size

    # ── conversations ──

    async def create(
        self,
        operation: OperationId,
        *,
        actor: str,
        agent: str | None = None,
        title: str | None = None,
        environment: str | None = None,
        model: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        parent: tuple[ConversationId, int] | None = None,
    ) -> Conversation:
        """Make a conversation, or fork one at `parent`. The same operation again makes no second one."""
        created = ConversationCreated(
            agent=agent,
            title=title,
            environment=environment,
            model=model,
            metadata=dict(metadata or {}),
            parent=Parent(conversation=parent[0], at=parent[1]) if parent else None,
        )
        conversation = ConversationId(derive("conv", operation))
        [new] = await self._spill((NewEvent(created, to_text(self.clock.now())),))
        made, event = await self._catalog.create(conversation, new, actor)
        self._tell(conversation, [event])
        return made

    async def fork(
        self, operation: OperationId, parent: Conversation, at: int, *, actor: str, **given: Any
    ) -> Conversation:
        """Make a conversation that shares the past of `parent` up to event `at`, and all that is not `given`."""
        inherited = {name: getattr(parent, name) for name in ("agent", "title", "environment", "model", "metadata")}
        return await self.create(operation, actor=actor, parent=(parent.id, at), **(inherited | given))

    async def find_made(self, operation: OperationId) -> Conversation | None:
        """What this operation made before a crash, if it came so far."""
        try:
            return await self._catalog.get(ConversationId(derive("conv", operation)))
        except NotFoundError:
            return None

    async def get(self, conversation: ConversationId) -> Conversation:
        return await self._catalog.get(conversation)

    async def list(
        self, *, limit: int, before: ConversationId | None = None, archived: bool = False, query: str | None = None
    ) -> list[Conversation]:
        return await self._catalog.list(limit=limit, before=before, archived=archived, query=query)

    async def archive(self, conversation: ConversationId, *, actor: str) -> None:
        """Hide it from lists and refuse new messages. Archiving what is archived changes nothing."""
        if (await self._catalog.get(conversation)).archived_at is not None:
            return
        new = NewEvent(ConversationArchived(), to_text(self.clock.now()))
        await self.append(Append(conversation, (new,), key="archive", actor=actor))

    async def send(
        self,
        operation: OperationId,
        conversation: ConversationId,
        *,
        actor: str,
        text: str,
        attachments: Sequence[Attachment] = (),
        model: str | None = None,
        is_hurried: bool = False,
    ) -> Sent:
        """Record a message. It joins the turn that is open, or opens one. The same operation again: the same answer.
        `is_hurried`: it asks to be taken at once."""
        message = MessageId(derive("msg", operation))
        data = MessageSent(message=message, text=text, attachments=[*attachments], model=model)
        more = [MessageHurried(message=message)] if is_hurried else []
        at = to_text(self.clock.now())
        appended = await self.append(
            Append(
                conversation,
                tuple(NewEvent(each, at) for each in (data, *more)),
                key=f"send/{message}",
                actor=actor,
                turn=TurnId(derive("turn", operation)),
            )
        )
        event = appended.events[0]
        assert event.turn is not None
        return Sent(message, event.turn, event.seq)

    # ── events ──

    async def append(self, append: Append) -> Appended:
        """Append one batch and tell followers. Durable when it returns."""
        append = append._replace(events=await self._spill(append.events))
        appended = await self._log.append(append)
        self._tell(append.conversation, appended.events)
        return appended

    def show(self, conversation: ConversationId, delta: Delta) -> None:
        """Show live output to followers; see `writer.py`."""
        self._feed.publish(conversation, (delta,))

    async def read(self, conversation: ConversationId, after: int, limit: int) -> Events:
        """Events with seq > `after`, whole (payloads fetched from the object store) and in their present version.

        At least one if there is one; fewer than `limit` when payloads are very big: the head says whether that is all.
        """
        events = await self._log.read(conversation, after, limit)
        if any(event.blob for event in events):
            events = await self._inflate(events)
        return [upcast(event) for event in events]

    async def head(self, conversation: ConversationId) -> int:
        """The seq of the newest event."""
        return await self._log.head(conversation)

    async def whole(self, event: Event) -> Event:
        """One event with its payload, in its present version."""
        [whole] = await self._inflate([event]) if event.blob is not None else [event]
        return upcast(whole)

    async def transcript(self, conversation: ConversationId) -> Transcript:
        """What a person should read now. Kept and continued, so that asking again costs only what is new."""
        transcript, size = self._transcripts.get(conversation) or (Transcript(), 0)
        while events := await self.read(conversation, transcript.head, PAGE):
            for event in events:
                # Somebody else may have continued the same transcript while we read: fold knows what it has.
                transcript.fold(event)
                size += len(event.data_json)
        if transcript.head == 0:
            await self._catalog.get(conversation)  # says so if there is none
        self._cache(conversation, transcript, size)
        return transcript

    def _cache(self, conversation: ConversationId, transcript: Transcript, size: int) -> None:
        """The least recently wanted goes first."""
        cached = self._transcripts
        cached[conversation] = (transcript, size)
        cached.move_to_end(conversation)
        total = sum(size for _, size in cached.values())
        while cached and (len(cached) > _CACHED_TRANSCRIPTS or total > _CACHED_CHARACTERS):
            total -= cached.popitem(last=False)[1][1]

    @asynccontextmanager
    async def follow(
        self, conversation: ConversationId, position: Position, *, deltas: bool = True
    ) -> AsyncIterator["Following"]:
        """Everything after `position`, then live."""
        head = await self._log.head(conversation)
        if position.seq > head:
            raise InvalidError(
                "position.ahead",
                f"This position is beyond the end of {conversation!r}: start again without one.",
                seq=position.seq,
                head=head,
            )
        open_attempts = await self._log.open_attempts(conversation, position.seq)
        follower = Follower(conversation, position, open_attempts, deltas=deltas)
        async with self._feed.subscribe(conversation) as subscription:
            yield Following(self, conversation, follower, subscription)

    # ── inside ──

    def _tell(self, conversation: ConversationId, events: Sequence[Event]) -> None:
        reach(CrashPoint.FEED_BEFORE_PUBLISH)
        self._feed.publish(conversation, events)
        reach(CrashPoint.FEED_AFTER_PUBLISH)

    async def _spill(self, events: tuple[NewEvent, ...]) -> tuple[NewEvent, ...]:
        for event in events:
            if len(event.data_json) * 4 <= INLINE_LIMIT:
                continue  # however many bytes its characters take
            payload = event.data_json.encode()
            if len(payload) > INLINE_LIMIT:
                event.blob = await self.blobs.put(payload)
                event.data_json = ""
        return events

    async def _inflate(self, events: Sequence[Event]) -> Events:
        """The first of `events`, with their payloads: all, or as many as fit the bound."""
        whole = list(events)
        size = 0

        async def fetch(index: int, blob: str) -> None:
            nonlocal size
            payload = await self.blobs.get(blob)
            size += len(payload)
            whole[index] = whole[index]._replace(data_json=payload.decode(), blob=None)

        big = [(index, event.blob) for index, event in enumerate(events) if event.blob is not None]
        for at in range(0, len(big), _BLOBS_AT_ONCE):
            if size >= _WHOLE_LIMIT:
                return whole[: big[at][0]]
            async with anyio.create_task_group() as group:
                for index, blob in big[at : at + _BLOBS_AT_ONCE]:
                    group.start_soon(fetch, index, blob)
        return whole


class Following:
    """One follower at work: `next_frames` until it is left."""

    def __init__(
        self, conversations: Conversations, conversation: ConversationId, follower: Follower, subscription: Subscription
    ) -> None:
        self._conversations = conversations
        self._conversation = conversation
        self._follower = follower
        self._subscription = subscription
        self._is_caught_up = False
        self._ready: list[Frame] = []

    @property
    def position(self) -> str:
        return self._follower.position()

    async def next_frames(self) -> list[Frame]:
        """What comes next, in order. Empty when something came that this follower has seen or does not want.

        May be cancelled and called again: nothing is lost.
        """
        if self._is_caught_up:
            signals = await self._subscription.receive()
            # They are taken: whoever is cut off before they are shown finds them in the log.
            self._is_caught_up = False
            self._is_caught_up = await self._take(signals)
        else:
            await self._catch_up()
        ready, self._ready = self._ready, []
        return ready

    async def _take(self, signals: list[Event | Delta | Grown | Lagged]) -> bool:
        """Make frames of `signals`. False if some were lost, or the log is more than a page ahead: read it."""
        for signal in signals:
            if isinstance(signal, Lagged):
                return False
            if self._follower.is_ahead(signal):
                await self._read_page()
                if self._follower.is_ahead(signal):
                    return False
            self._ready.extend(self._show(signal))
        return True

    def _show(self, signal: Event | Delta | Grown) -> list[Frame]:
        if isinstance(signal, Event):
            return self._follower.event(signal)
        if isinstance(signal, Delta):
            frame = self._follower.delta(signal)
            return [frame] if frame else []
        return []

    async def _catch_up(self) -> None:
        if not await self._read_page():
            self._is_caught_up = True
            retained = self._subscription.retained()
            self._ready.extend(frame for delta in retained if (frame := self._follower.delta(delta)))

    async def _read_page(self) -> bool:
        """Show the next events of the log; False if there are none."""
        events = await self._conversations.read(self._conversation, self._follower.seq, PAGE)
        self._ready.extend(frame for event in events for frame in self._follower.event(event))
        return bool(events)
