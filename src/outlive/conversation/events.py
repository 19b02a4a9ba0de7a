"""What can stand in a log: the closed, versioned union of durable events, and the envelope they are read in.

Rule 1: a type name is never renamed and never changes its meaning. A changed shape is `v + 1` and an upcast
        (`upcast.py`); every version ever written loads for ever (`tests/golden/events`).
Rule 2: what is written is checked here, once, when it is made. What is read is passed on as the text it was stored as,
        unless its version is old: reading is the hot path, and a reader that has to look inside asks for `typed`.
"""

import json
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from outlive.base import EventId, InvalidError, StepId, TurnId, new_event_id

SEQ_MAX = 2**32 - 1  # a log ends there: four thousand million events
Seq = Annotated[int, Field(ge=0, le=SEQ_MAX)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class EventData(BaseModel):
    """The part of an event that its type decides. Subclasses are the union; the table at the end closes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: ClassVar[str]
    v: ClassVar[int] = 1


class Parent(BaseModel):
    """Where a fork left its parent: it shares all events up to and including `at`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    conversation: str
    at: Seq


class ConversationCreated(EventData):
    type = "conversation.created"
    agent: str | None = None
    title: str | None = None
    environment: str | None = None
    model: str | None = None
    metadata: dict[str, JsonValue] = {}
    parent: Parent | None = None


class ConversationArchived(EventData):
    type = "conversation.archived"


class Attachment(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    media_type: str
    size: int
    blob: str


class MessageSent(EventData):
    type = "message.sent"
    message: str
    text: str
    attachments: list[Attachment] = []
    model: str | None = None


class MessageHurried(EventData):
    """The message before it asks to be taken at once: the step that is under way is stopped, and calls that have not
    begun are left undone."""

    type = "message.hurried"
    message: str


class MessageWithdrawn(EventData):
    """Nobody answers it, and the model is never told of it: no answer had been asked for since it was sent."""

    type = "message.withdrawn"
    message: str


class QueueOrdered(EventData):
    """The messages that wait for an answer are told in this order."""

    type = "queue.ordered"
    order: list[str]


class MessagePinned(EventData):
    """Whoever answers is told this message word for word, however long the conversation gets."""

    type = "message.pinned"
    message: str


class MessageUnpinned(EventData):
    type = "message.unpinned"
    message: str


class TurnStarted(EventData):
    type = "turn.started"
    agent: str
    version: int
    model: str


class StepStarted(EventData):
    type = "step.started"
    kind: Literal["model", "tool", "compaction"]
    name: str


class ToolCall(BaseModel):
    """With `error`, the arguments that the model wrote could not be read, and `arguments` is empty."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str
    name: str
    arguments: dict[str, JsonValue]
    error: str | None = None


class Usage(BaseModel):
    """Tokens of one model step. `input_tokens` are those that were neither read from a cache nor written to it."""

    model_config = ConfigDict(extra="allow", frozen=True)
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None


class ModelResponded(EventData):
    """Seals a model step: the whole answer, whatever of it was streamed.

    `blocks` are for the eyes of the provider that made them (thinking with its signature): kept and given back as they
    came.
    """

    type = "model.responded"
    v = 2
    text: str
    tool_calls: list[ToolCall] = []
    blocks: list[JsonValue] = []
    model: str
    usage: Usage = Usage()
    stop_reason: str = "end_turn"


class ModelFallback(EventData):
    """`before` is away, for the reason that stands here; from `attempt` of the step on, to the end of the turn, `model`
    is asked in its place. `code`: what was wrong with the attempt before."""

    type = "model.fallback"
    model: str
    before: str
    step: str
    attempt: int
    code: str
    reason: str


ModelScope = Literal["turn", "conversation"]


class ModelChanged(EventData):
    """Somebody wants another model: from the next attempt of a step on, to the end of the turn of this event, or in the
    conversation for good. `before`: the one that the turn, or the conversation, had; None: that of its agent."""

    type = "model.changed"
    model: str
    before: str | None = None
    scope: ModelScope


class ToolRequested(EventData):
    type = "tool.requested"
    call: str
    name: str
    arguments: dict[str, JsonValue]
    effect: str


class ToolFinished(EventData):
    """Seals a tool step. `lost` means that nobody knows the outcome; it is never turned into `failed`."""

    type = "tool.finished"
    call: str
    effect: str
    outcome: Literal["finished", "failed", "rejected", "lost"]
    output: str
    exit_code: int | None = None
    blob: str | None = None


class CompactionRequested(EventData):
    """What is old in the conversation is to be summarised before the next answer: somebody asked for it, there is as
    much as the agent may be told (`full`), or the provider found it too long (`too_long`) at `step`: so many `tokens`,
    as estimated. `keep`: how many of the newest parts stay as they are; else as the agent has it."""

    type = "compaction.requested"
    reason: Literal["asked", "full", "too_long"]
    keep: int | None = None
    step: str | None = None
    tokens: int | None = None


class CompactionFinished(EventData):
    """Seals a compaction. If it was `compacted`, models are told `summary` from here on, in the place of the `parts`
    that they met up to event `through`, which all stay in the log. `before` and `after`: tokens of what is told, as
    estimated. If not, nothing has changed, and `reason` says why."""

    type = "compaction.finished"
    outcome: Literal["compacted", "nothing", "failed"]
    summary: str = ""
    through: Seq = 0
    parts: int = 0
    before: int = 0
    after: int = 0
    model: str
    usage: Usage = Usage()
    reason: str | None = None


BudgetScope = Literal["turn", "conversation"]
BudgetLimit = Literal["tokens", "usd", "steps", "seconds"]


class BudgetQuestion(BaseModel):
    """Which limit would be passed, and by how much it is raised if nobody names another amount."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    scope: BudgetScope
    limit: BudgetLimit
    amount: float


class ApprovalRequested(EventData):
    """A person is asked. With `digest`, whether `tool` may be run with exactly these `arguments`, for this `effect`;
    with `budget`, whether the turn may use more; else a question of the agent's own, with what it proposes. `step` is
    the one that waits for it; for more of a budget the whole turn does."""

    type = "approval.requested"
    v = 3
    approval: str
    question: str
    digest: str | None = None
    expires_at: str
    step: str | None = None
    effect: str | None = None
    tool: str | None = None
    arguments: dict[str, JsonValue] | None = None
    proposal: str | None = None
    budget: BudgetQuestion | None = None


class ApprovalDecided(EventData):
    """Who decided is the event's actor; of one that expired, the loop."""

    type = "approval.decided"
    approval: str
    decision: Literal["approve", "deny", "expired"]
    comment: str | None = None


class BudgetRaised(EventData):
    """Somebody gave more: so much is added to the limits that there are, of the turn of this event, of the conversation
    or of both. `approval`: the question that this answers."""

    type = "budget.raised"
    scope: Literal["turn", "conversation", "both"]
    tokens: int = 0
    usd: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    approval: str | None = None


class WaitStarted(EventData):
    """The step waits until then, or until a message comes."""

    type = "wait.started"
    step: str
    call: str
    until: str


class MachineAttached(EventData):
    type = "machine.attached"
    machine: str


class MachineForked(EventData):
    """The machine that was just attached is a copy of another one, made from that checkpoint of it. `ahead`: effects
    that the copy holds, though this log does not tell of them: the checkpoint is younger than the event it was forked
    at."""

    type = "machine.forked"
    machine: str
    origin: str
    checkpoint: str
    ahead: list[str] = []


class MachineHibernated(EventData):
    type = "machine.hibernated"
    machine: str


class MachineWoken(EventData):
    type = "machine.woken"
    machine: str


class MachineRebooted(EventData):
    type = "machine.rebooted"
    machine: str


class MachineRolledBack(EventData):
    type = "machine.rolled_back"
    machine: str
    checkpoint: str
    effects: list[str]


class MachineLost(EventData):
    type = "machine.lost"
    machine: str


class SubagentStarted(EventData):
    """A conversation of its own was begun by `step`, which waits for it unless it is `detached`. `machine`: the same
    as that of this conversation, a copy of it, or a new one."""

    type = "subagent.started"
    v = 2
    conversation: str
    step: str | None = None
    detached: bool = False
    machine: Literal["same", "fork", "new"] = "same"


class SubagentFinished(EventData):
    type = "subagent.finished"
    conversation: str
    outcome: str


class ArtifactPublished(EventData):
    type = "artifact.published"
    artifact: str
    title: str
    media_type: str
    size: int


class TurnInterrupted(EventData):
    """`seen`: the head of the log when it was asked for. A message after that was not meant to be stopped. None: all
    that is there was."""

    type = "turn.interrupted"
    v = 2
    reason: str | None = None
    seen: int | None = None


class TurnRecovered(EventData):
    """Something was mended without anybody: what, why, and of which step the `attempt` is that now begins."""

    type = "turn.recovered"
    what: Literal["step_retried", "restarted", "machine_lost", "machine_rolled_back", "machine_rebooted"]
    step: str | None = None
    attempt: int | None = None
    reason: str


class TurnParked(EventData):
    """All that the turn can do is wait, until something comes or `until`. Whoever wrote this saw all before it."""

    type = "turn.parked"
    until: str | None = None


class TurnPaused(EventData):
    """A person lets the turn wait from its next step on, until it is resumed."""

    type = "turn.paused"
    reason: str | None = None


class TurnResumed(EventData):
    type = "turn.resumed"


class TurnFinished(EventData):
    type = "turn.finished"
    outcome: Literal["done", "interrupted", "failed", "out_of_budget", "waiting_expired"]
    reason: str | None = None


class ReplayStarted(EventData):
    """The turn of this event runs `turn` of `conversation` (its events `first` to `last`) again, on another model and
    with the same version of the agent. `left_out`: messages that had come after the first answer, and are not in it."""

    type = "replay.started"
    conversation: str
    turn: str
    first: Seq
    last: Seq
    agent: str
    version: int
    model: str
    execute: bool = False
    left_out: int = 0


class ReplayParted(EventData):
    """From this call on the replay does what the recording has no result for. `answered`: calls before it that were
    answered from the recording. With `execute` it is really done from here on, else the turn ends here."""

    type = "replay.parted"
    call: str
    name: str
    answered: int
    execute: bool


DURABLE: dict[str, type[EventData]] = {
    cls.type: cls
    for cls in (
        ConversationCreated,
        ConversationArchived,
        MessageSent,
        MessageHurried,
        MessageWithdrawn,
        QueueOrdered,
        MessagePinned,
        MessageUnpinned,
        TurnStarted,
        StepStarted,
        ModelResponded,
        ModelFallback,
        ModelChanged,
        ToolRequested,
        ToolFinished,
        CompactionRequested,
        CompactionFinished,
        ApprovalRequested,
        ApprovalDecided,
        BudgetRaised,
        WaitStarted,
        MachineAttached,
        MachineForked,
        MachineHibernated,
        MachineWoken,
        MachineRebooted,
        MachineRolledBack,
        MachineLost,
        SubagentStarted,
        SubagentFinished,
        ArtifactPublished,
        TurnInterrupted,
        TurnRecovered,
        TurnParked,
        TurnPaused,
        TurnResumed,
        TurnFinished,
        ReplayStarted,
        ReplayParted,
    )
}

LiveType = Literal["model.delta", "tool.output", "step.rewound"]

SEALS = frozenset({"model.responded", "tool.finished", "compaction.finished"})  # end a step: it is never run again
TURN_ENDS = frozenset({"turn.finished", "turn.interrupted"})  # abandon what is open
STEP_TYPES = SEALS | {"step.started", "tool.requested"}  # need a writer


def _encode(data: EventData) -> str:
    """Compact JSON that every database can hold: NUL stays an escape, as do the characters that some programs take for
    the end of a line; half a surrogate pair, which no UTF-8 can hold, becomes a question mark.
    Other characters stay themselves, so that storage grows with what was said."""
    try:
        text = json.dumps(data.model_dump(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InvalidError(
            "event.unstorable", f"A {data.type} holds a number that JSON has no word for (NaN, Infinity, too long)."
        ) from error
    return text if text.isascii() else text.translate(_LINE_ENDS).encode("utf-8", "replace").decode()


_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class NewEvent:
    """An event that is about to be appended: checked and encoded, without a place in the log yet."""

    __slots__ = ("at", "blob", "data", "data_json", "id", "type")

    def __init__(self, data: EventData, at: str, id: EventId | None = None) -> None:
        self.data = data
        self.type = data.type
        self.data_json = _encode(data)
        self.at = at
        self.id = id or new_event_id()
        self.blob: str | None = None  # set when the payload was moved to the object store; data_json is then empty


class Event(NamedTuple):
    """One entry of a log, as it was stored. A tuple, because catching up makes thousands of them."""

    seq: int
    id: EventId
    turn: TurnId | None
    step: StepId | None
    attempt: int | None
    type: str
    v: int
    at: str
    actor: str
    data_json: str
    blob: str | None  # where the payload is when it was too big for the row; then data_json is empty until inflated

    @property
    def data(self) -> dict[str, Any]:
        """The payload, decoded. Decodes at each use: keep what you took."""
        decoded: dict[str, Any] = json.loads(self.data_json)
        return decoded


class Delta(NamedTuple):
    """A piece of live output. Goes to the feed only; may be lost; the event that seals its step has it all.

    `start` is the seq of the `step.started` of its attempt: that, not the clock, says which attempt it belongs to.
    `offset` counts the characters that this attempt streamed before it.
    """

    start: int
    offset: int
    turn: TurnId | None
    step: StepId
    attempt: int
    type: Literal["model.delta", "tool.output"]
    text: str
    call: str | None
    stream: str | None
    at: str
    actor: str

    @property
    def end(self) -> int:
        return self.offset + len(self.text)


class Rewound(NamedTuple):
    """Told to a follower in place of what it saw of a step's older attempts: forget it, `attempt` begins."""

    turn: TurnId | None
    step: StepId
    attempt: int
    at: str
    actor: str


def text_of(data: EventData) -> str | None:
    """What a search should find an event by."""
    match data:
        case ConversationCreated(title=str() as title):
            return title
        case MessageSent(text=text) | ModelResponded(text=text):
            return text
        case _:
            return None
