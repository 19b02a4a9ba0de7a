"""What the log says about the turn at hand: made by `fold.py`, read by `decide.py` and by the activities. Pure."""

from dataclasses import dataclass, field

from outlive.base import ConversationId, StepId, TurnId


@dataclass(frozen=True, slots=True)
class Binding:
    """What `turn.started` bound the turn to."""

    agent: str
    version: int
    model: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that no answer has seen yet."""

    seq: int
    message: str
    model: str | None  # that it asks for
    is_hurried: bool = False  # it asks to be taken at once


@dataclass(frozen=True, slots=True)
class AskedFor:
    """A model for the rest of a turn, and the event that says so."""

    seq: int
    model: str


@dataclass(frozen=True, slots=True)
class Hold:
    """What a call waits for: a person's decision (`approval`), or the time. `until`: when it is over anyway. With
    `yields`, a message that no answer has seen ends it too."""

    seq: int  # of the event that says so
    until: str
    approval: str | None = None
    yields: bool = True
    decision: str | None = None  # approve, deny or expired
    decided: int | None = None  # the seq of the decision

    def is_over(self, now: str, *, is_spoken_to: bool) -> bool:
        return self.decision is not None or self.until <= now or (self.yields and is_spoken_to)


@dataclass(frozen=True, slots=True)
class Child:
    """A subagent of this conversation. `outcome` is there once its turn has ended, and this log says so."""

    conversation: ConversationId
    turn: TurnId | None  # of this conversation, that began it
    detached: bool
    machine: str
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the newest answer. `outcome` is there once its step is sealed."""

    step: StepId
    n: int
    id: str
    name: str
    is_requested: bool = False
    outcome: str | None = None
    hold: Hold | None = None
    child: Child | None = None  # the subagent that it waits for, or waited for

    @property
    def is_begun(self) -> bool:
        """Whether something of it may have happened, or its end is a matter of a moment (what a message ends)."""
        return self.is_requested or (self.hold is not None and self.hold.yields)

    def is_free(self, now: str, *, is_spoken_to: bool) -> bool:
        """Whether it waits for nothing, or for nothing any more."""
        is_held = self.hold is not None and not self.hold.is_over(now, is_spoken_to=is_spoken_to)
        return not is_held and (self.child is None or self.child.outcome is not None)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is old is to be summarised before the next answer (`compaction.requested`), and has not been yet."""

    seq: int  # of the event that says so
    reason: str
    keep: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """The newest sealed model step of the open turn."""

    step: StepId
    n: int
    seq: int  # of the seal
    start: int  # of the attempt that was sealed: what came before this was seen by the model
    stop_reason: str
    calls: tuple[Call, ...] = ()

    @property
    def next_n(self) -> int:
        return self.n + len(self.calls) + 1


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that has not ended. Without `bound` it was opened by a message, and has not begun."""

    id: TurnId
    bound: Binding | None = None
    answer: LastAnswer | None = None
    next_n: int = 1  # the place of the next model step
    model_steps: int = 0  # sealed
    attempts: dict[StepId, int] = field(default_factory=dict)  # the last attempt of each step that has started
    is_interrupted: bool = False
    gate: Hold | None = None  # the newest question for more of a budget: all of the turn waits for it
    is_paused: bool = False  # by a person
    is_parked: bool = False  # the log says that it waits, and nothing came since
    asked_at: int = 0  # the seq at which an answer was last asked for: what came before is on its way to the model
    asked: AskedFor | None = None  # the model that somebody asked for since, or that stands in for one that is away
    away: tuple[str, ...] = ()  # models that others stand in for, since somebody last asked for one
    asked_others: dict[StepId, int] = field(default_factory=dict)  # attempts of each step with other models, or cut
    compaction: Compaction | None = None  # that comes before anything new
    too_long: frozenset[str] = frozenset()  # steps at which the provider's word that it is too long was heeded

    @property
    def model(self) -> str | None:
        """The one that the next attempt asks."""
        if self.asked is not None:
            return self.asked.model
        return self.bound.model if self.bound is not None else None

    def attempts_of_model(self, step: StepId) -> int:
        """How often the step was tried with this model, and not stopped for a message."""
        return self.attempts.get(step, 0) - self.asked_others.get(step, 0)

    def may_take(self, step: StepId) -> bool:
        """Whether the step may be begun, or tried again."""
        return not self.is_interrupted and (not self.is_paused or step in self.attempts)


@dataclass(frozen=True, slots=True)
class TurnState:
    """One conversation at event `seq`. `agent`, `environment` and `model` are what it was made with; somebody may have
    changed the model since."""

    conversation: ConversationId
    seq: int = 0
    agent: str | None = None
    environment: str | None = None
    model: str | None = None
    machine: str | None = None
    turn: OpenTurn | None = None
    waiting: tuple[Waiting, ...] = ()
    children: tuple[Child, ...] = ()  # subagents that have not ended, of whichever turn
    compaction: Compaction | None = None  # without a turn: the next one begins with it

    @property
    def queue(self) -> tuple[Waiting, ...]:
        """The messages that no answer was asked for yet, in the order in which the model will be told."""
        return tuple(each for each in self.waiting if self.turn is None or each.seq > self.turn.asked_at)

    @property
    def needs_answer(self) -> bool:
        """Whether there is something that the model has not been asked about."""
        answer = self.turn.answer if self.turn is not None else None
        return answer is None or bool(answer.calls) or bool(self.waiting)

    @property
    def is_hurried(self) -> bool:
        """Whether a message asked to be taken at once, and no answer has seen it: no tool runs until one has."""
        return any(each.is_hurried for each in self.waiting)

    def is_outrun(self, start: int) -> bool:
        """Whether such a message came after the attempt of a model step that started there."""
        return any(each.is_hurried and each.seq > start for each in self.waiting)
