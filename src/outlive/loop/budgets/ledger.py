"""What a conversation has used, from its log alone. Pure, and incremental: `take` the next event, ask for the `ledger`.

Rule 1: a model step, and a compaction, counts when it is sealed, with all its tokens: read from a cache, written to
        it, or neither. A step counts when it has started, once, however often it was tried.
Rule 2: time runs while the turn does. From `turn.parked` on, until something comes that the turn has to look at,
        nothing of it runs and nothing is counted, whether it waits for a person or for a time.
Rule 3: a fork counts from where it left its parent. What was given to a turn ends with it.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from outlive.base import EventId, TurnId
from outlive.conversation.events import BudgetLimit, BudgetRaised, BudgetScope, Event
from outlive.conversation.upcast import upcast

LIMITS: tuple[BudgetLimit, ...] = ("tokens", "usd", "steps", "seconds")
# As in `loop/fold.py`: with these, or a message, a turn that was parked goes on.
_STIRS = frozenset({"step.started", "approval.requested", "approval.decided", "wait.started", "turn.recovered"})


class Used(NamedTuple):
    """`unpriced`: model steps whose cost nobody knows; they are not in `usd`."""

    tokens: int = 0
    usd: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    unpriced: int = 0

    def plus(self, other: "Used") -> "Used":
        return Used(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "usd": round(self.usd, 8), "seconds": round(self.seconds, 3)}


class Question(NamedTuple):
    """A person is asked for more, and has not answered."""

    approval: str
    scope: BudgetScope
    limit: BudgetLimit
    amount: float

    def is_lifted_by(self, given: BudgetRaised) -> bool:
        """Whether this raises the limit that was hit."""
        return given.scope in (self.scope, "both") and getattr(given, self.limit) > 0


class Ledger(NamedTuple):
    """One conversation at one moment. `raised`: by scope and limit, what people added. `asked`: how often the open turn
    has asked for more. `before`: what the turns before the open one used. `beside`: compactions of the open turn: steps
    that have no place among the others."""

    turn: TurnId | None
    version: tuple[str, int] | None  # of the agent that the newest turn was bound to
    before: Used
    now: Used  # of the open turn
    raised: dict[BudgetScope, dict[BudgetLimit, float]]
    asked: int
    question: Question | None
    beside: int = 0

    def used(self, scope: BudgetScope) -> Used:
        return self.now if scope == "turn" else self.before.plus(self.now)


@dataclass(slots=True)
class _Running:
    """The turn that has begun, while it is folded."""

    id: TurnId | None
    since: str | None  # when it last went on; None: it is parked
    used: Used = field(default_factory=Used)
    steps: set[str] = field(default_factory=set)
    asked: int = 0
    beside: set[str] = field(default_factory=set)  # of those, compactions

    def at(self, moment: str) -> Used:
        ran = _seconds(self.since, moment) if self.since is not None else 0.0
        return self.used._replace(steps=len(self.steps), seconds=self.used.seconds + ran)


class BudgetFold:
    """Takes events one by one, from the first; one that was taken before changes nothing."""

    def __init__(self) -> None:
        self.seq = 0
        self.raises: set[EventId] = set()  # those that people gave: few
        self._reset()
        self._version: tuple[str, int] | None = None

    def _reset(self) -> None:
        self._before = Used()
        self._running: _Running | None = None
        self._raised: dict[BudgetLimit, float] = {}
        self._raised_turn: tuple[TurnId | None, dict[BudgetLimit, float]] = (None, {})
        self._question: Question | None = None

    def take(self, event: Event) -> None:
        if event.seq <= self.seq:
            return
        self.seq = event.seq
        match event.type:
            case "conversation.created":
                self._reset()
            case "turn.started":
                self._close(event.at)
                self._running = _Running(event.turn, event.at)
                data = upcast(event).data
                self._version = (data["agent"], data["version"])
            case "budget.raised":
                self._raise(event)
            case "message.sent" if self._running is not None:
                self._running.since = self._running.since or event.at
            case _ if self._running is not None and event.turn == self._running.id:
                self._go_on(self._running, event)
            case _:
                pass

    def ledger(self, now: str) -> Ledger:
        """`now`: the moment, as the log writes it."""
        running = self._running
        turn = running.id if running is not None else None
        given, amounts = self._raised_turn
        return Ledger(
            turn=turn,
            version=self._version,
            before=self._before,
            now=running.at(now) if running is not None else Used(),
            raised={"turn": dict(amounts) if given == turn else {}, "conversation": dict(self._raised)},
            asked=running.asked if running is not None else 0,
            question=self._question,
            beside=len(running.beside) if running is not None else 0,
        )

    def _go_on(self, running: _Running, event: Event) -> None:
        if event.type in _STIRS:
            running.since = running.since or event.at
        match event.type:
            case "step.started" if event.step is not None:
                running.steps.add(event.step)
                if event.data["kind"] == "compaction":
                    running.beside.add(event.step)
            case "model.responded" | "compaction.finished":
                running.used = running.used.plus(_bought(upcast(event).data["usage"]))
            case "approval.requested" if (asked := upcast(event).data)["budget"] is not None:
                running.asked += 1
                self._question = Question(asked["approval"], **asked["budget"])
            case "approval.decided" if self._question and event.data["approval"] == self._question.approval:
                self._question = None
            case "turn.parked":
                running.used = running.at(event.at)
                running.since = None
            case "turn.finished":
                self._close(event.at)
            case _:
                pass

    def _close(self, at: str) -> None:
        if self._running is not None:
            self._before = self._before.plus(self._running.at(at))
        self._running = self._question = None

    def _raise(self, event: Event) -> None:
        self.raises.add(event.id)
        data = upcast(event).data
        added: dict[BudgetLimit, float] = {limit: data[limit] for limit in LIMITS if data[limit]}
        if data["scope"] != "turn":
            self._raised = _sum(self._raised, added)
        if data["scope"] != "conversation" and event.turn is not None:
            before = self._raised_turn[1] if self._raised_turn[0] == event.turn else {}
            self._raised_turn = (event.turn, _sum(before, added))


def _sum(one: dict[BudgetLimit, float], other: dict[BudgetLimit, float]) -> dict[BudgetLimit, float]:
    return {limit: one.get(limit, 0) + other.get(limit, 0) for limit in (*one, *other)}


def _bought(usage: dict[str, Any]) -> Used:
    tokens = sum(usage[f"{kind}_tokens"] for kind in ("input", "output", "cache_read", "cache_write"))
    cost = usage["cost_usd"]
    return Used(tokens=tokens, usd=cost or 0.0, unpriced=int(cost is None and tokens > 0))


def _seconds(start: str, end: str) -> float:
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
