"""A loop in memory that does what `decide` says, on a log with the real rules, while a tape of choices makes it crash,
fall behind and be interrupted, and lets people speak at any moment."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from outlive.base import (
    ConflictError,
    FencedError,
    StepId,
    TurnId,
    derive,
    new_message_id,
    new_turn_id,
    to_text,
)
from outlive.conversation.approvals import digest_of
from outlive.conversation.events import (
    SEALS,
    ApprovalDecided,
    ApprovalRequested,
    Event,
    MessageHurried,
    MessageSent,
    ToolRequested,
    TurnFinished,
    TurnInterrupted,
    TurnParked,
)
from outlive.conversation.log import Writer
from outlive.loop.decide import Limits, Runs, decide
from outlive.loop.fold import TurnFold, fold_turn
from outlive.loop.follow_ups import QueueFold
from outlive.loop.holds import AskAbout, WaitFor, asked, expired, undone_approvals
from outlive.loop.plan import Plan, ToolStep
from unit.loop.logs import STARTED, Log, answer, call, finished

RUNS: Mapping[str, Runs] = {"read": "parallel", "shell": "in_turn"}
NAMES = ("read", "shell", "asked", "unknown", "asked", "wait")
HELD = ("asked", "wait")  # what has to wait before it is run
NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)  # that is longer than anything waits here
LIMITS = Limits(steps=8, at_once=2)
MESSAGES_MAX = 10


class CrashedError(Exception):
    """The worker is gone; what is in the log stays."""


class Simulation:
    """`tape` is read choice by choice; when it is used up everything goes well and nobody speaks any more."""

    def __init__(self, tape: list[int]) -> None:
        self.log = Log()
        self._tape: Iterator[int] = iter(tape)
        self.is_quiet = False
        self._fold = TurnFold(self.log.conversation)
        self._messages = 0
        self._calls = 0
        self._stale: Plan | None = None
        self._now = NOW
        self._pending: list[str] = []  # approvals that nobody has decided on

    def choose(self, count: int) -> int:
        """0 is always what happens when all goes well."""
        choice = next(self._tape, None)
        if choice is None:
            self.is_quiet = True
            return 0
        return choice % count

    def run(self) -> int:
        """Until nothing is left to do; how many plans that took after the tape had ended."""
        quiet = 0
        while True:
            self._disturb()
            plan = self.plan()
            if plan.nothing and self.is_quiet:
                return quiet
            quiet += self.is_quiet
            assert quiet < 100, f"does not come to an end: {plan}"
            if self.choose(6) == 1 and self._stale is not None:
                self._try(self._stale)  # a worker that was forgotten wakes up
            if self.choose(4) == 1:
                self._stale = plan
            self._try(plan)

    def plan(self) -> Plan:
        """As an activity does it: go on folding, decide again. Now and then from the beginning, as a fresh worker."""
        if self.choose(3) == 1:
            self._fold = TurnFold(self.log.conversation)
        for event in self.log.events[self._fold.seq :]:
            self._fold.take(event)
        return decide(self._fold.state(), RUNS, LIMITS, to_text(self._now))

    def _try(self, plan: Plan) -> None:
        with suppress(CrashedError, ConflictError, FencedError):  # somebody looks again
            self._do(plan)

    def _disturb(self) -> None:
        """People: a message, or a stop, whatever the loop is at."""
        what = self.choose(15)
        if what in (1, 2) and self._messages < MESSAGES_MAX:
            self._messages += 1
            self.log.message(f"message {self._messages}")
        elif what == 3 and (turn := self.log.summary.turn) is not None:
            stop = TurnInterrupted(reason="stop")
            if self.choose(2):
                self.log.append(stop, turn=turn)  # the end comes from whoever looks next
            else:
                self.log.append(stop, TurnFinished(outcome="interrupted"), turn=turn)
        elif what in (4, 5) and self._pending:
            self._decide(self._pending[-1], ("approve", "deny")[self.choose(2)])
        elif what == 6:
            self._now += HOUR  # whatever waits for the time is over, and what is asked has expired
        elif what == 7 and self._messages < MESSAGES_MAX:
            self._messages += 1
            self._hurry(f"message {self._messages}")
        elif what in (8, 9):
            self._line_up(is_order=what == 8)

    def _hurry(self, text: str) -> None:
        message = new_message_id()
        sent = MessageSent(message=message, text=text)
        self.log.append(sent, MessageHurried(message=message), turn=new_turn_id())

    def _line_up(self, *, is_order: bool) -> None:
        """Somebody puts what waits in another order, or withdraws some of it."""
        queue = QueueFold(self.log.conversation)
        for event in self.log.events:
            queue.take(event)
        waiting = [each.id for each in queue.queue()]
        with suppress(ConflictError):
            if waiting:
                news = queue.order(waiting[::-1]) if is_order else queue.withdraw(waiting[self.choose(len(waiting))])
                turn = queue.state().turn
                assert turn is not None
                if news is not None:
                    self.log.append(news, turn=turn.id, expect=queue.seq)

    def _decide(self, approval: str, decision: str) -> None:
        """As the key of its batch has it: only once."""
        if approval in self._pending:
            self._pending.remove(approval)
            request = next(each for each in self.log.events if each.data.get("approval") == approval)
            said = ApprovalDecided.model_validate({"approval": approval, "decision": decision})
            self.log.append(said, turn=request.turn)

    def _maybe_crash(self) -> None:
        self._disturb()
        if self.choose(7) == 1:
            raise CrashedError

    def _do(self, plan: Plan) -> None:
        self._maybe_crash()
        if plan.begin is not None:
            self.log.append(STARTED, turn=plan.turn, expect=plan.seq)
        elif plan.model is not None and plan.turn is not None:
            self._call_model(plan.turn, plan.model.step)
        elif plan.finish is not None:
            is_stopped = plan.finish.outcome == "interrupted"
            end = TurnFinished(outcome=plan.finish.outcome, reason=plan.finish.reason)
            self.log.append(end, turn=plan.turn, expect=None if is_stopped else plan.seq)
        elif plan.wait is not None and plan.turn is not None:
            self._rest(plan.turn, plan)
        elif plan.turn is not None:
            tools = list(plan.tools)
            while tools:
                self._run_tool(plan.turn, tools.pop(self.choose(len(tools))))

    def _start(self, turn: TurnId, step: StepId, kind: str, name: str) -> Writer:
        attempt = 1 + max((event.attempt or 0 for event in self.log.events if event.step == step), default=0)
        sealed = [event for event in self.log.events if event.step == step and event.type in SEALS]
        if sealed:
            raise ConflictError("step.sealed", "found before anything was bought")
        n = next(n for n in range(1, 1000) if derive("step", turn, n) == step)
        self.log.start(turn, n, attempt, kind, name)
        self._maybe_crash()
        return Writer(step, attempt, 1)

    def _call_model(self, turn: TurnId, step: StepId) -> None:
        for undone in undone_approvals(fold_turn(self.log.conversation, self.log.events)):
            self._decide(undone.approval, "expired")
        writer = self._start(turn, step, "model", "demo:")
        state = fold_turn(self.log.conversation, self.log.events)
        plan = decide(state, RUNS, LIMITS, to_text(self._now))
        if plan.model is None or plan.model.step != step:
            return  # what it was to answer was withdrawn
        start = next(event.seq for event in reversed(self.log.events) if event.type == "step.started")
        self._maybe_crash()
        if fold_turn(self.log.conversation, self.log.events).is_outrun(start):
            if self.choose(2):  # something had been said
                self.log.append(answer("sai", stop_reason="interrupted"), turn=turn, writer=writer)
            return
        calls = []
        for _ in range(self.choose(4)):
            self._calls += 1
            calls.append(call(f"call_{self._calls}", NAMES[self.choose(len(NAMES))]))
        reason = "refusal" if not calls and self.choose(4) == 1 else None
        self.log.append(answer("said", *calls, stop_reason=reason), turn=turn, writer=writer)
        self._maybe_crash()

    def _rest(self, turn: TurnId, plan: Plan) -> None:
        assert plan.wait is not None
        if not plan.wait.is_parked:
            self.log.append(TurnParked(until=plan.wait.until), turn=turn, expect=plan.seq)
        elif self.is_quiet:
            self._now += HOUR

    def _hold(self, turn: TurnId, tool: ToolStep) -> bool:
        """As `activities/holding.py` does it. Whether the call has to wait."""
        state = fold_turn(self.log.conversation, self.log.events)
        calls = state.turn.answer.calls if state.turn and state.turn.answer else ()
        call = next((each for each in calls if each.step == tool.step and each.outcome is None), None)
        if call is None or state.turn is None or state.turn.id != turn:
            raise ConflictError("step.sealed", "found before anything was written")
        if call.hold is None:
            wish = AskAbout("asked", {}, digest_of("asked", {}), 60.0) if tool.name == "asked" else WaitFor(60.0)
            data = asked(wish, call, self._now)
            self.log.append(data, turn=turn, expect=state.seq)
            self._pending += [data.approval] if isinstance(data, ApprovalRequested) else []
            return True
        if expired(call.hold, to_text(self._now), is_spoken_to=bool(state.waiting)) is not None:
            self._decide(call.hold.approval or "", "expired")
            return True
        return not call.hold.is_over(to_text(self._now), is_spoken_to=bool(state.waiting))

    def _is_left_undone(self, tool: ToolStep) -> bool:
        state = fold_turn(self.log.conversation, self.log.events)
        calls = state.turn.answer.calls if state.turn and state.turn.answer else ()
        return state.is_hurried and not any(call.is_begun for call in calls if call.step == tool.step)

    def _run_tool(self, turn: TurnId, tool: ToolStep) -> None:
        if self._is_left_undone(tool):
            raise ConflictError("step.undone", "a message came first")
        if tool.name in HELD and self._hold(turn, tool):
            return self._maybe_crash()
        writer = self._start(turn, tool.step, "tool", tool.name)
        request = call(tool.call, tool.name)
        effect = derive("eff", tool.step)
        self.log.append(
            ToolRequested(call=request.id, name=request.name, arguments={}, effect=effect), turn=turn, writer=writer
        )
        self._maybe_crash()
        is_hurried = fold_turn(self.log.conversation, self.log.events).is_hurried
        outcome = "failed" if is_hurried else ("finished", "failed", "lost")[self.choose(3)]
        done = finished(tool.call, outcome=outcome, effect=effect)
        self.log.append(done, turn=turn, writer=writer._replace(batch=2))
        self._maybe_crash()


def of_type(events: list[Event], *types: str) -> list[Event]:
    return [event for event in events if event.type in types]
