"""What an append may do, and what becomes of it. Pure; the one place that assigns a seq.

A backend finds the rows an append depends on (`Known`), calls `plan`, and writes what the plan says, all in one
transaction. Several appends may be planned after each other in one transaction: each sees what the ones before did.

Rules of a step (one row of `attempts` each):

    attempt given      | last attempt is open       | sealed          | abandoned | none yet
    -------------------+----------------------------+-----------------+-----------+---------------
    older              | fenced                     | fenced          | fenced    | -
    the same, starting | conflict (already started) | conflict        | fenced    | -
    the same, going on | appended; a seal seals it  | conflict        | fenced    | -
    newer, starting    | supersedes: older fenced   | conflict        | fenced    | opens
    newer, going on    | invalid (not started)      | conflict        | fenced    | invalid

A turn is ended once, while it is the open one; its end abandons what is still open. Nothing of a step follows a seal or
the end of a turn in the same batch. An append that expects a head is refused when the log has moved on; a repeat of one
that was appended is still a repeat.

What a turn newly does (a step, a question to a person, a subagent) belongs to the open turn, or to none while none is
open:

    turn given  | none is open       | it is the open one | another is open
    ------------+--------------------+--------------------+----------------
    none        | appended           | -                  | fenced
    some turn   | fenced             | appended           | fenced

So whoever stood still while its turn was ended begins nothing any more. Nor does a turn begin beside an open one. Who
attaches a machine for a turn is fenced the same way, unless a message of the same batch opens or joins one:

    turn given  | none is open | it is the open one | another is open | the conversation is archived
    ------------+--------------+--------------------+-----------------+-----------------------------
    none        | appended     | -                  | appended        | conflict
    some turn   | fenced       | appended           | fenced          | by its turn: it goes on

A conversation has one machine at a time, and whoever attaches another says in the place of which: of two that attach
the first at the same time one is refused. Else a step that began in the one would be tried again in the other.
"""

from dataclasses import dataclass, field
from typing import Literal

from outlive.base import (
    ConflictError,
    ConversationId,
    ExhaustedError,
    FencedError,
    InvalidError,
    NotFoundError,
    OutliveError,
    StepId,
    TurnId,
)
from outlive.conversation.events import (
    SEALS,
    SEQ_MAX,
    STEP_TYPES,
    TURN_ENDS,
    Event,
    MachineAttached,
    NewEvent,
    TurnFinished,
)
from outlive.conversation.log import (
    ARCHIVED,
    BATCH_LIMIT,
    HAS_MACHINE,
    TURN_OVER,
    Append,
    Appended,
    ConversationState,
    Writer,
)

# Only the open turn does that.
_NEW_WORK = frozenset({"step.started", "approval.requested", "replay.parted", "subagent.started"})

# They, and what comes with them (that a subagent ended, with its report), join the open turn, whichever it is.
_SENT = frozenset({"message.sent", "message.hurried"})

_COUNT_MAX = 2**31 - 1  # of attempts and batches: what every database can hold

AttemptStatus = Literal["open", "sealed", "superseded", "abandoned"]


@dataclass(slots=True)
class Summary:
    """The row of a conversation that an append changes."""

    key: int  # the backend's own number for it
    head: int
    state: ConversationState
    turn: TurnId | None
    machine: str | None
    archived_at: str | None
    updated_at: str


@dataclass(slots=True)
class LastAttempt:
    attempt: int
    status: AttemptStatus


@dataclass(slots=True)
class Known:
    """What a backend knows before the appends of one transaction are planned; `plan` keeps it up to date."""

    summaries: dict[ConversationId, Summary] = field(default_factory=dict)
    attempts: dict[tuple[ConversationId, StepId], LastAttempt] = field(default_factory=dict)
    batches: dict[tuple[ConversationId, str], list[Event]] = field(default_factory=dict)


@dataclass(slots=True)
class AttemptStarted:
    key: int
    step: StepId
    attempt: int
    start: int
    turn: TurnId | None


@dataclass(slots=True)
class AttemptEnded:
    key: int
    step: StepId
    attempt: int
    end: int
    status: AttemptStatus


@dataclass(slots=True)
class TurnEnded:
    """Every attempt that is still open in this conversation ends, abandoned, at `end`."""

    key: int
    end: int


AttemptChange = AttemptStarted | AttemptEnded | TurnEnded


@dataclass(slots=True)
class Plan:
    """What a backend has to write. `changes` in this order; `touched` conversations once each, as `Known` has them."""

    events: list[tuple[int, str, NewEvent, Event]] = field(default_factory=list)  # conversation key, batch key, ...
    changes: list[AttemptChange] = field(default_factory=list)
    touched: set[ConversationId] = field(default_factory=set)


def plan(append: Append, known: Known, into: Plan) -> Appended | OutliveError:
    """Decide on one append. Either all of it is added to `into`, or an error is returned and nothing is changed."""
    before = known.batches.get((append.conversation, append.key))
    if before is not None:
        return _repeat(append, before)
    summary = known.summaries.get(append.conversation)
    if summary is None:
        return NotFoundError("conversation.not_found", f"There is no conversation {append.conversation!r}.")
    types = [new.type for new in append.events]
    refusal = (
        _refuse_moved(append, summary)
        or _refuse_batch(append, types, summary)
        or _refuse_writer(append, types, known)
        or _refuse_turn(append, types, summary)
        or _refuse_machine(append, summary)
    )
    if refusal is not None:
        return refusal

    turn = append.turn if _SENT.isdisjoint(types) else summary.turn or append.turn
    placed: list[Event] = []
    for new in append.events:
        summary.head += 1
        _fold(summary, new, turn)
        placed.append(_place(new, append, summary.head, turn))
        into.events.append((summary.key, append.key, new, placed[-1]))
        _change_attempts(new.type, append, summary, known, into)
    into.touched.add(append.conversation)
    known.batches[append.conversation, append.key] = placed
    return Appended(tuple(placed), is_repeat=False)


def _place(new: NewEvent, append: Append, seq: int, turn: TurnId | None) -> Event:
    writer = append.writer
    return Event(
        seq=seq,
        id=new.id,
        turn=turn,
        step=writer.step if writer else None,
        attempt=writer.attempt if writer else None,
        type=new.type,
        v=new.data.v,
        at=new.at,
        actor=append.actor,
        data_json=new.data_json,
        blob=new.blob,
    )


def _repeat(append: Append, before: list[Event]) -> Appended | OutliveError:
    same = len(before) == len(append.events) and all(
        old.type == new.type and old.data_json == new.data_json and old.blob == new.blob
        for old, new in zip(before, append.events, strict=True)
    )
    if not same:
        return ConflictError(
            "append.key_reused", f"Batch {append.key!r} was appended before with other events; take a new key."
        )
    return Appended(tuple(before), is_repeat=True)


def _refuse_moved(append: Append, summary: Summary) -> OutliveError | None:
    if append.expect is None or append.expect == summary.head:
        return None
    return ConflictError(
        "append.moved",
        f"{append.conversation!r} is at event {summary.head}, not {append.expect}: look again, then decide.",
        head=summary.head,
    )


def _refuse_machine(append: Append, summary: Summary) -> OutliveError | None:
    for new in append.events:
        if isinstance(new.data, MachineAttached) and summary.machine not in (None, append.instead_of, new.data.machine):
            return ConflictError(HAS_MACHINE, f"{append.conversation!r} has another machine: {summary.machine!r}.")
    return None


def _refuse_batch(append: Append, types: list[str], summary: Summary) -> OutliveError | None:
    if not 0 < len(types) <= BATCH_LIMIT:
        return InvalidError("append.size", f"A batch has 1 to {BATCH_LIMIT} events; this one has {len(types)}.")
    if "conversation.created" in types:
        return InvalidError("append.created_twice", "conversation.created is written by create, not by append.")
    if summary.archived_at is not None and "message.sent" in types:
        return ConflictError(
            ARCHIVED,
            f"Conversation {append.conversation!r} is archived and takes no new messages; fork it to go on.",
        )
    if summary.archived_at is not None and append.turn is None and "machine.attached" in types:
        return ConflictError(
            ARCHIVED,
            f"Conversation {append.conversation!r} is archived and gets no machine; make one without it, or fork it.",
        )
    if append.writer is None and not STEP_TYPES.isdisjoint(types):
        return InvalidError("append.needs_writer", "Events of a step are appended by a writer (step, attempt, batch).")
    if summary.head + len(types) > SEQ_MAX:
        return ExhaustedError("log.full", f"Conversation {append.conversation!r} has as many events as it can hold.")
    return _refuse_order(types)


def _refuse_order(types: list[str]) -> OutliveError | None:
    """Attempts are checked once per batch, so what ends one has to be the last that the batch says of it."""
    ends = [index for index, type in enumerate(types) if type in SEALS or type in TURN_ENDS]
    if ends and not STEP_TYPES.isdisjoint(types[ends[0] + 1 :]):
        return InvalidError("append.after_the_end", "Nothing of a step follows a seal or the end of a turn in a batch.")
    return None


def _refuse_turn(append: Append, types: list[str], summary: Summary) -> OutliveError | None:
    given, is_open = append.turn, summary.turn
    if given == is_open:
        return None
    if not TURN_ENDS.isdisjoint(types):
        return ConflictError(TURN_OVER, f"Turn {given!r} is not open, so it cannot end.")
    is_late = "machine.attached" in types and given is not None and "message.sent" not in types
    if is_late or not _NEW_WORK.isdisjoint(types):
        now = "no turn is open" if is_open is None else f"{is_open!r} is the open one"
        return FencedError(TURN_OVER, f"Turn {given!r} is over, or has not begun: {now}. Stop.")
    if is_open is not None and "turn.started" in types:
        return ConflictError(TURN_OVER, f"Turn {given!r} cannot begin: {is_open!r} is the open one.")
    return None


def _refuse_writer(append: Append, types: list[str], known: Known) -> OutliveError | None:
    writer = append.writer
    if writer is None:
        return None
    if not (1 <= writer.attempt <= _COUNT_MAX and 0 <= writer.batch <= _COUNT_MAX):
        return InvalidError("append.writer", f"Attempts count from 1 and batches from 0, not {writer.key!r}.")
    if "step.started" in types[1:]:
        return InvalidError("append.start_not_first", "step.started is the first event of an attempt's first batch.")
    last = known.attempts.get((append.conversation, writer.step))
    return _refuse_attempt(writer, last, is_starting=types[0] == "step.started")


def _refuse_attempt(writer: Writer, last: LastAttempt | None, *, is_starting: bool) -> OutliveError | None:
    not_started = InvalidError("step.not_started", f"Attempt {writer.attempt} of {writer.step!r} has not started.")
    if last is None:
        return None if is_starting else not_started
    if writer.attempt < last.attempt:
        return FencedError(
            "step.fenced",
            f"Attempt {writer.attempt} of {writer.step!r} is over: attempt {last.attempt} has started. Stop.",
            attempt=last.attempt,
        )
    if last.status == "abandoned":
        return FencedError("step.abandoned", f"The turn of {writer.step!r} has ended. Stop.")
    if last.status == "sealed":
        return ConflictError("step.sealed", f"{writer.step!r} is sealed; its result is in the log.")
    if writer.attempt == last.attempt and is_starting:
        return ConflictError("step.already_started", f"Attempt {writer.attempt} of {writer.step!r} started before.")
    if writer.attempt > last.attempt and not is_starting:
        return not_started
    return None


def _change_attempts(type: str, append: Append, summary: Summary, known: Known, into: Plan) -> None:
    writer = append.writer
    if type in TURN_ENDS:
        into.changes.append(TurnEnded(summary.key, summary.head))
        for (conversation, _), last in known.attempts.items():
            if conversation == append.conversation and last.status == "open":
                last.status = "abandoned"
    if writer is None:
        return
    at = (append.conversation, writer.step)
    if type == "step.started":
        older = known.attempts.get(at)
        if older is not None:
            into.changes.append(AttemptEnded(summary.key, writer.step, older.attempt, summary.head, "superseded"))
        into.changes.append(AttemptStarted(summary.key, writer.step, writer.attempt, summary.head, append.turn))
        known.attempts[at] = LastAttempt(writer.attempt, "open")
    elif type in SEALS:
        into.changes.append(AttemptEnded(summary.key, writer.step, writer.attempt, summary.head, "sealed"))
        known.attempts[at].status = "sealed"


def _fold(summary: Summary, new: NewEvent, turn: TurnId | None) -> None:
    """What a list shows of a conversation after one more event."""
    summary.updated_at = new.at
    match new.type:
        case "message.sent" if summary.turn is None and turn is not None:
            summary.state, summary.turn = "running", turn
        case "turn.started":
            summary.state, summary.turn = "running", turn
        case "approval.requested":
            summary.state = "waiting"
        case "turn.parked" if turn == summary.turn:
            summary.state = "waiting"
        case "approval.decided" | "message.sent" | "step.started" | "turn.recovered" | "turn.resumed":
            # The turn goes on, or looks at least whether it can. What is of a turn that has ended changes nothing.
            is_heard = new.type == "message.sent" or turn == summary.turn
            summary.state = "running" if summary.state == "waiting" and is_heard else summary.state
        case "turn.finished":
            assert isinstance(new.data, TurnFinished)
            summary.state = "failed" if new.data.outcome == "failed" else "idle"
            summary.turn = None
        case "machine.attached":
            assert isinstance(new.data, MachineAttached)
            summary.machine = new.data.machine
        case "conversation.archived":
            summary.archived_at = new.at
        case _:
            pass
