"""The event log and the catalog of conversations: the ports, and the plain values that pass through them.

The log is the only truth about what was said and done:
- a batch of events is appended whole or not at all, and is durable (fsync) when `append` returns;
- seq is dense from 1 and assigned in one place (`append.py`, inside the backend's transaction);
- a batch has a key; the same batch again changes nothing and gets the same answer;
- a writer of an older attempt is fenced from the moment a newer attempt has started.

What an append may do is decided by the pure functions in `append.py`; a backend only finds and keeps rows.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from outlive.base import ConversationId, InvalidError, StepId, TurnId
from outlive.conversation.events import Event, NewEvent

ConversationState = Literal["idle", "running", "waiting", "failed"]

READ_LIMIT = 10_000  # events in one read
READ_CHARACTERS = 8 * 1024 * 1024  # of payloads in one read: about where it stops, so that memory is bounded
BATCH_LIMIT = 1_000  # events in one batch
HAS_MACHINE = "conversation.has_machine"  # why another one was not attached
ARCHIVED = "conversation.archived"  # why nothing is given to it any more
TURN_OVER = "turn.over"  # why nothing is done for that turn any more


def beyond_head(conversation: ConversationId, head: int, at: int) -> InvalidError:
    """The refusal of an event that is not there yet."""
    return InvalidError("fork.beyond_head", f"{conversation!r} ends at event {head}; it has no event {at}.", head=head)


class Writer(NamedTuple):
    """Who appends for a step: one attempt of it, counting its batches from 0."""

    step: StepId
    attempt: int
    batch: int

    @property
    def key(self) -> str:
        return f"{self.step}/{self.attempt}/{self.batch}"


class Append(NamedTuple):
    """One atomic batch. `key` makes it idempotent within its conversation (for a step: `Writer.key`).

    With `expect` it is for one moment of the log only: refused (`append.moved`) if the head is another by then.
    A machine is attached where there is none, or instead of the one that is named: else refused (`HAS_MACHINE`).
    With a turn only while that is open.
    """

    conversation: ConversationId
    events: tuple[NewEvent, ...]
    key: str
    actor: str
    turn: TurnId | None = None  # with a `message.sent`: the turn to open if none is open
    writer: Writer | None = None
    expect: int | None = None
    instead_of: str | None = None


class Appended(NamedTuple):
    """What became of a batch: its events in their places. `is_repeat`: they had been there before."""

    events: tuple[Event, ...]
    is_repeat: bool

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(event.seq for event in self.events)


class OpenAttempt(NamedTuple):
    """An attempt that had started and not ended at some seq."""

    step: StepId
    attempt: int
    start: int
    turn: TurnId | None


class EventLog(Protocol):
    async def append(self, append: Append) -> Appended:
        """Append one batch, durably. Raises what `append.py` decides, or `unavailable` / `exhausted`: then nothing of
        the batch is in the log, unless the process that called cannot know (it asks again with the same key)."""
        ...

    async def read(self, conversation: ConversationId, after: int, limit: int) -> list[Event]:
        """Up to `limit` events with seq > `after`, in order; a fork's shared past included. Payloads that went to the
        object store come back as references (`Event.blob`). Fewer when they are big (`READ_CHARACTERS`), but at least
        one if there is one."""
        ...

    async def head(self, conversation: ConversationId) -> int:
        """The seq of the newest event."""
        ...

    async def heads(self, conversations: Collection[ConversationId]) -> dict[ConversationId, int]:
        """The heads of many conversations in one look; unknown ones are left out."""
        ...

    async def open_attempts(self, conversation: ConversationId, at: int) -> list[OpenAttempt]:
        """The attempts that were open right after event `at`."""
        ...


class Conversation(NamedTuple):
    """A conversation as lists and `get` show it: what its events so far amount to."""

    id: ConversationId
    agent: str | None
    title: str | None
    environment: str | None
    model: str | None
    metadata: dict[str, JsonValue]
    parent: tuple[ConversationId, int] | None
    state: ConversationState
    turn: TurnId | None
    machine: str | None
    head: int
    created_by: str
    created_at: str
    updated_at: str
    archived_at: str | None


class OpenTurn(NamedTuple):
    """A turn that has not ended, and when its conversation was last written to. `is_idle`: no attempt of a step is
    open."""

    conversation: ConversationId
    turn: TurnId
    updated_at: str
    state: ConversationState = "running"
    is_idle: bool = False


OpenTurns = list[OpenTurn]  # named here, since `Catalog.list` hides the builtin below it


class Catalog(Protocol):
    async def create(self, conversation: ConversationId, created: NewEvent, actor: str) -> tuple[Conversation, Event]:
        """Make a conversation whose first own event is `created` (a `conversation.created`).

        With a parent the new one shares the parent's events up to and including `parent.at` and goes on from there.
        Again with the same id and the same data: changes nothing, same answer; with other data: conflict. The answer's
        event is the `conversation.created` with its place.
        """
        ...

    async def get(self, conversation: ConversationId) -> Conversation: ...

    async def list(
        self, *, limit: int, before: ConversationId | None = None, archived: bool = False, query: str | None = None
    ) -> list[Conversation]:
        """Newest first, with an id smaller than `before`. `query`: those with all its words in the title or the text
        of one message or answer (the first `SEARCHED_CHARACTERS` of it). `archived`: those that are archived
        instead."""
        ...

    async def open_turns(self, *, limit: int, after: ConversationId | None = None) -> "OpenTurns":
        """The turns that are open, also those of archived conversations, by the conversation's id."""
        ...


SEARCHED_CHARACTERS = 4_096
