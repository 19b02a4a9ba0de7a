"""What the events of a conversation amount to for the loop. Pure, and incremental: `take` the next event, ask `state`.

Rule 1: a turn is opened by the message that carries its id, begins with `turn.started`, and is over with
        `turn.finished`. Conversations that were forked go on without the turn that was open in their parent.
Rule 2: an answer has seen what stood in the log before the attempt that was sealed began, and nothing that came later.
        A message waits until an answer has seen it, or its turn has ended: whoever ends a turn looks at the log again
        (`Append.expect`), or was told to stop by somebody who could see the message.
Rule 3: a message that came after somebody asked for an interrupt (`turn.interrupted` says what was there to see), and
        before the end of that turn, was never meant to be stopped: it opens a turn of its own.
Rule 4: the place of a step in its turn follows from the sealed answers alone, so that parallel tools, retries and
        crashes never move it: an answer at n has its calls at n + 1, n + 2, ..., and the next answer comes after them.
Rule 5: a call is held by what was asked or said about its step (`approval.requested`, `wait.started`). The turn is
        parked from `turn.parked` on, until something comes that it has to look at. A question for more of a budget
        holds all of the turn.
Rule 6: a call that began a subagent (`subagent.started`) waits for it, unless it is detached, until the log says that
        it ended (`subagent.finished`); that may stand before, and concerns detached ones of turns long over too.
Rule 7: a message can be withdrawn, and those that wait put in another order, until an answer is asked for: the start of
        a model step takes what stands before it. One that hurries leaves calls that have not begun undone; whoever
        runs the others stops them.
Rule 8: the model that a turn was bound to is asked until somebody wants another one (`model.changed`), or one stands in
        for it (`model.fallback`); both end with the turn. What is wanted for the conversation holds for later turns.
Rule 9: a compaction is asked for once at a time. One that a person asked for waits for a turn, if need be for the
        next; what the loop asked for ends with its turn. Its step has a place beside the others, and moves none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from outlive.base import ConversationId, StepId, TurnId, derive
from outlive.conversation.events import Event
from outlive.conversation.upcast import upcast
from outlive.loop.state import (
    AskedFor,
    Binding,
    Call,
    Child,
    Compaction,
    Hold,
    LastAnswer,
    OpenTurn,
    TurnState,
    Waiting,
)

# As in `append`, which says by the same events that a conversation waits no more.
_STIRS = frozenset(
    {"step.started", "approval.requested", "approval.decided", "wait.started", "turn.recovered", "turn.resumed"}
)


def step_id(turn: TurnId, n: int) -> StepId:
    """The id of the n-th step of a turn."""
    return StepId(derive("step", turn, n))


def compaction_id(turn: TurnId, requested: int) -> StepId:
    """The id of the step that does what was requested at that event."""
    return StepId(derive("step", turn, -requested))  # places count from 1


def fold_turn(conversation: ConversationId, events: Iterable[Event]) -> TurnState:
    """The state after `events`, which are those of the conversation from its beginning, in order."""
    fold = TurnFold(conversation)
    for event in events:
        fold.take(event)
    return fold.state()


@dataclass(slots=True)
class _Turn:
    """The open turn while it is folded."""

    id: TurnId
    bound: Binding | None = None
    answer: LastAnswer | None = None
    calls: list[Call] = field(default_factory=list)
    next_n: int = 1
    model_steps: int = 0
    attempts: dict[StepId, int] = field(default_factory=dict)
    starts: dict[StepId, int] = field(default_factory=dict)  # the seq at which the last attempt started
    is_interrupted: bool = False
    gate: Hold | None = None
    is_paused: bool = False
    is_parked: bool = False
    asked_at: int = 0
    asked: AskedFor | None = None
    away: tuple[str, ...] = ()
    asked_others: dict[StepId, int] = field(default_factory=dict)
    cuts: dict[StepId, int] = field(default_factory=dict)  # the last attempt of each step that a message came into
    too_long: set[str] = field(default_factory=set)

    def ask(self, seq: int, model: str) -> None:
        """From now on this model is asked."""
        self.asked, self.asked_others = AskedFor(seq, model), dict(self.attempts)

    def cut(self) -> None:
        """The attempt of a model step that is under way is stopped for a message: the model has not failed."""
        step = step_id(self.id, self.next_n)
        attempt, others = self.attempts.get(step, 0), self.asked_others.get(step, 0)
        if self.cuts.get(step, 0) < attempt and others < attempt:
            self.cuts[step], self.asked_others[step] = attempt, others + 1

    def state(self) -> OpenTurn:
        return OpenTurn(
            id=self.id,
            bound=self.bound,
            answer=replace(self.answer, calls=tuple(self.calls)) if self.answer else None,
            next_n=self.next_n,
            model_steps=self.model_steps,
            attempts=dict(self.attempts),
            is_interrupted=self.is_interrupted,
            gate=self.gate,
            is_paused=self.is_paused,
            is_parked=self.is_parked,
            asked=self.asked,
            asked_at=self.asked_at,
            away=self.away,
            asked_others=dict(self.asked_others),
            too_long=frozenset(self.too_long),
        )


class TurnFold:
    """Takes events one by one, from the first; one that was taken before changes nothing."""

    def __init__(self, conversation: ConversationId) -> None:
        self._state = TurnState(conversation)
        self._turn: _Turn | None = None
        self._waiting: list[Waiting] = []
        self._children: dict[str, Child] = {}  # that have not ended
        self._outcomes: dict[str, str] = {}  # of those that have
        self._compaction: Compaction | None = None

    @property
    def seq(self) -> int:
        """The newest event that was taken."""
        return self._state.seq

    def state(self) -> TurnState:
        compaction = self._compaction
        turn = replace(self._turn.state(), compaction=compaction) if self._turn else None
        children = tuple(self._children.values())
        waiting = tuple(self._waiting)
        return replace(self._state, turn=turn, waiting=waiting, children=children, compaction=compaction)

    def take(self, event: Event) -> None:
        if event.seq <= self._state.seq:
            return
        self._state = replace(self._state, seq=event.seq)
        match event.type:
            case "conversation.created":
                self._create(upcast(event))
            case "message.sent":
                self._hear(upcast(event))
            case "message.hurried" | "message.withdrawn" | "queue.ordered":
                self._line_up(upcast(event))
            case "turn.started":
                self._begin(upcast(event))
            case "machine.attached":
                self._state = replace(self._state, machine=upcast(event).data["machine"])
            case "model.changed":
                self._change_model(upcast(event))
            case "subagent.started":
                self._beget(upcast(event))
            case "subagent.finished":
                self._part(upcast(event))
            case "compaction.requested":
                self._ask_for_compaction(upcast(event))
            case "compaction.finished":
                self._compaction = None
            case _:
                if self._turn is not None and event.turn == self._turn.id:
                    self._go_on(self._turn, upcast(event))

    def _create(self, event: Event) -> None:
        data, before = event.data, self._state
        self._state = replace(
            before,
            agent=data["agent"] or before.agent,
            environment=data["environment"] or before.environment,
            model=data["model"] or before.model,
            machine=None,
        )
        self._turn, self._waiting = None, []
        self._children, self._outcomes, self._compaction = {}, {}, None  # a fork's parent has them

    def _hear(self, event: Event) -> None:
        data = event.data
        self._waiting.append(Waiting(event.seq, data["message"], data["model"]))
        turn = self._turn
        if turn is None:
            self._turn = _Turn(event.turn or TurnId(derive("turn", event.id)))
        elif turn.bound is None and event.turn not in (None, turn.id):
            self._turn = _Turn(event.turn)  # nobody was told the id that a message after an interrupt would have got
        else:
            turn.is_parked = False

    def _line_up(self, event: Event) -> None:
        """Something is said of the messages that wait. Of one that waits no more, nothing follows."""
        data = event.data
        match event.type:
            case "message.hurried":
                if self._turn is not None:
                    self._turn.cut()
                self._waiting = [
                    replace(each, is_hurried=True) if each.message == data["message"] else each
                    for each in self._waiting
                ]
            case "message.withdrawn":
                self._waiting = [each for each in self._waiting if each.message != data["message"]]
            case _:
                place = {message: n for n, message in enumerate(data["order"])}
                self._waiting.sort(key=lambda each: place.get(each.message, -1))  # what was taken stays in front

    def _begin(self, event: Event) -> None:
        data = event.data
        assert event.turn is not None
        if self._turn is None or self._turn.id != event.turn:
            self._turn = _Turn(event.turn)
        turn = self._turn
        turn.bound = Binding(data["agent"], data["version"], data["model"])
        turn.asked, turn.asked_others, turn.away = None, {}, ()  # whoever began it has seen what was wanted before

    def _change_model(self, event: Event) -> None:
        data = event.data
        if data["scope"] == "conversation":
            self._state = replace(self._state, model=data["model"])
        if self._turn is not None and event.turn == self._turn.id:
            self._turn.ask(event.seq, data["model"])
            self._turn.away = ()

    def _beget(self, event: Event) -> None:
        data = event.data
        name = ConversationId(data["conversation"])
        child = Child(name, event.turn, data["detached"], data["machine"], self._outcomes.get(name))
        if child.outcome is None:
            self._children[name] = child
        turn = self._turn
        if turn is not None and event.turn == turn.id and not child.detached:
            turn.calls = [replace(call, child=child) if call.step == data["step"] else call for call in turn.calls]

    def _part(self, event: Event) -> None:
        data = event.data
        name, outcome = data["conversation"], data["outcome"]
        self._outcomes[name] = outcome
        self._children.pop(name, None)
        for place, call in enumerate(self._turn.calls if self._turn is not None else ()):
            if self._turn is not None and call.child is not None and call.child.conversation == name:
                self._turn.calls[place] = replace(call, child=replace(call.child, outcome=outcome))

    def _ask_for_compaction(self, event: Event) -> None:
        data, turn = event.data, self._turn
        if self._compaction is None:
            self._compaction = Compaction(event.seq, data["reason"], data["keep"], data["tokens"])
        if turn is not None and turn.id == event.turn and data["step"] is not None:
            turn.too_long.add(data["step"])

    def _go_on(self, turn: _Turn, event: Event) -> None:
        """An event of the open turn."""
        turn.is_parked = turn.is_parked and event.type not in _STIRS
        match event.type:
            case "step.started":
                assert event.step is not None
                assert event.attempt is not None
                turn.attempts[event.step], turn.starts[event.step] = event.attempt, event.seq
                turn.asked_at = event.seq if event.data["kind"] == "model" else turn.asked_at
            case "model.responded":
                self._answer(turn, event)
            case "model.fallback":
                data = event.data
                turn.ask(event.seq, data["model"])
                turn.away = (*turn.away, data["before"])
            case "tool.requested" | "tool.finished":
                _mark(turn, event)
            case "approval.requested" if (asked := event.data)["budget"] is not None:
                turn.gate = Hold(event.seq, asked["expires_at"], asked["approval"], yields=False)
            case "approval.requested" | "wait.started":
                _hold(turn, event)
            case "approval.decided":
                _decide(turn, event)
            case "turn.parked":
                turn.is_parked = True
            case "turn.paused" | "turn.resumed":
                turn.is_paused = event.type == "turn.paused"
            case "turn.interrupted":
                turn.is_interrupted = True
                seen = event.data["seen"]
                self._waiting = [message for message in self._waiting if seen is not None and message.seq > seen]
            case "turn.finished":
                self._end(turn, event)
            case _:
                pass

    def _answer(self, turn: _Turn, event: Event) -> None:
        data, n = event.data, turn.next_n
        assert event.step is not None
        turn.calls = [
            Call(step_id(turn.id, n + place), n + place, call["id"], call["name"])
            for place, call in enumerate(data["tool_calls"], 1)
        ]
        start = turn.starts.get(event.step, event.seq)
        turn.answer = LastAnswer(event.step, n, event.seq, start, data["stop_reason"])
        turn.next_n = n + len(turn.calls) + 1
        turn.model_steps += 1
        self._waiting = [message for message in self._waiting if message.seq > start]

    def _end(self, turn: _Turn, event: Event) -> None:
        self._turn = None
        if self._compaction is not None and self._compaction.reason != "asked":
            self._compaction = None
        if not turn.is_interrupted:
            self._waiting = []
        elif self._waiting:
            self._turn = _Turn(TurnId(derive("turn", turn.id, event.seq)))


def _hold(turn: _Turn, event: Event) -> None:
    """A call waits from now on. One that somebody was asked about before goes on waiting for that."""
    data = event.data
    for place, call in enumerate(turn.calls):
        if call.step == data["step"] and call.hold is None:
            hold = Hold(event.seq, data["until"]) if event.type == "wait.started" else _asked(event.seq, data)
            turn.calls[place] = replace(call, hold=hold)


def _asked(seq: int, data: dict[str, Any]) -> Hold:
    """Whoever speaks instead of answering a question has answered it. But a message never decides about a tool."""
    return Hold(seq, data["expires_at"], data["approval"], yields=data["digest"] is None)


def _decide(turn: _Turn, event: Event) -> None:
    data, gate = event.data, turn.gate
    if gate is not None and gate.approval == data["approval"] and gate.decision is None:
        turn.gate = replace(gate, decision=data["decision"], decided=event.seq)
    for place, call in enumerate(turn.calls):
        hold = call.hold
        if hold is not None and hold.approval == data["approval"] and hold.decision is None:
            decided = replace(hold, decision=data["decision"], decided=event.seq)
            turn.calls[place] = replace(call, hold=decided)


def _mark(turn: _Turn, event: Event) -> None:
    """A call of the newest answer was requested or finished. Its step says which; a log that other hands wrote has
    steps of other names, and then the call's own id does."""
    data = event.data
    places = [place for place, call in enumerate(turn.calls) if call.step == event.step] or [
        place for place, call in enumerate(turn.calls) if call.id == data["call"]
    ]
    for place in places[:1]:
        outcome = data["outcome"] if event.type == "tool.finished" else turn.calls[place].outcome
        turn.calls[place] = replace(turn.calls[place], is_requested=True, outcome=outcome)
