"""What a conversation has used, from its log alone."""

from datetime import UTC, datetime, timedelta

import pytest

from outlive.base import TurnId, derive, to_text
from outlive.conversation.events import (
    ApprovalDecided,
    ApprovalRequested,
    BudgetQuestion,
    BudgetRaised,
    ConversationCreated,
    Event,
    ModelResponded,
    Parent,
    Usage,
)
from outlive.loop.budgets import BudgetFold, Ledger
from outlive.loop.decide import decide
from outlive.loop.fold import fold_turn
from outlive.loop.plan import Finish, Wait
from unit.loop.logs import Log, answer, call

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = to_text(NOW + timedelta(hours=1))


def bought(tokens: int, usd: float | None = 0.5, **more: int) -> ModelResponded:
    usage = Usage(input_tokens=tokens, cost_usd=usd, **more)
    return ModelResponded(text="Done.", model="demo:", usage=usage)


def ledger(events: list[Event], now: str = LATER) -> Ledger:
    fold = BudgetFold()
    for event in events:
        fold.take(event)
        fold.take(event)  # what was taken before changes nothing
    return fold.ledger(now)


def ask(log: Log, turn: TurnId, n: int = 1, limit: str = "tokens") -> str:
    approval = derive("appr", turn, n)
    question = BudgetQuestion.model_validate({"scope": "turn", "limit": limit, "amount": 10.0})
    log.append(ApprovalRequested(approval=approval, question="More?", expires_at=LATER, budget=question), turn=turn)
    return approval


def begun(log: Log) -> TurnId:
    turn = log.message()
    log.begin(turn)
    return turn


def timed(log: Log, *seconds: float) -> list[Event]:
    """The events of the log, so many seconds after it began."""
    at = [to_text(NOW + timedelta(seconds=each)) for each in seconds]
    return [event._replace(at=moment) for event, moment in zip(log.events, at, strict=True)]


def test_sealed_answers_and_started_steps_are_counted_once_by_turn_and_conversation() -> None:
    log = Log()
    first = begun(log)
    log.start(first, 1)
    log.start(first, 1, attempt=2)
    log.respond(first, 1, bought(100, output_tokens=20, cache_read_tokens=3, cache_write_tokens=4), attempt=2)
    log.end(first)
    second = begun(log)
    log.answered(second, 1, answer("", call("1")))
    log.tool(second, 2, call("1"))
    log.answered(second, 3, bought(50, 0.25))
    found = ledger(log.events)
    assert (found.turn, found.version) == (second, ("coder", 3))
    assert found.used("turn")[:3] == (50, 0.25, 3)
    assert found.used("conversation")[:3] == (177, 0.75, 4)
    assert found.used("conversation").unpriced == 0, "what used nothing costs nothing"


def test_what_nobody_knows_the_cost_of_is_said() -> None:
    log = Log()
    log.answered(begun(log), 1, bought(10, None))
    assert (ledger(log.events).now.usd, ledger(log.events).now.unpriced) == (0.0, 1)


def test_time_runs_while_the_turn_does_and_not_while_it_waits() -> None:
    log = Log()
    turn = begun(log)  # created 0, message 0, begun 10
    approval = ask(log, turn)  # 15
    log.park(turn)  # 16
    log.append(ApprovalDecided(approval=approval, decision="approve"), turn=turn)  # 5000
    log.start(turn, 1)  # 5001
    events = timed(log, 0, 0, 10, 15, 16, 5000, 5001)
    assert ledger(events[:5], to_text(NOW + timedelta(seconds=4000))).now.seconds == 6
    assert ledger(events, to_text(NOW + timedelta(seconds=5004))).now.seconds == 10
    assert ledger(events, to_text(NOW)).now.seconds == 6, "a clock that goes back takes nothing away"


def test_a_raise_counts_for_its_turn_or_for_the_conversation() -> None:
    log = Log()
    first = begun(log)
    log.append(BudgetRaised(scope="both", tokens=5), turn=first)
    log.append(BudgetRaised(scope="turn", tokens=2, usd=1.0), turn=first)
    assert ledger(log.events).raised == {"turn": {"tokens": 7, "usd": 1.0}, "conversation": {"tokens": 5}}
    log.end(first)
    second = log.message()
    log.append(BudgetRaised(scope="turn", steps=3), turn=second)  # before it has begun
    log.begin(second)
    assert ledger(log.events).raised == {"turn": {"steps": 3}, "conversation": {"tokens": 5}}


def test_a_fork_counts_from_where_it_left_its_parent() -> None:
    log = Log()
    turn = begun(log)
    log.answered(turn, 1, bought(100))
    log.append(BudgetRaised(scope="both", tokens=5), turn=turn)
    parent = Parent(conversation=log.conversation, at=len(log.events))
    fork = Log(ConversationCreated(agent="coder", parent=parent), tuple(log.events))
    found = ledger(fork.events)
    assert (found.turn, found.used("conversation")[:3]) == (None, (0, 0.0, 0))
    assert found.raised == {"turn": {}, "conversation": {}}


def test_a_question_is_open_until_it_is_decided_or_its_turn_has_ended() -> None:
    log = Log()
    turn = begun(log)
    approval = ask(log, turn)
    question = ledger(log.events).question
    assert question is not None
    assert (question.approval, ledger(log.events).asked) == (approval, 1)
    assert not question.is_lifted_by(BudgetRaised(scope="conversation", tokens=9))
    assert not question.is_lifted_by(BudgetRaised(scope="turn", usd=9.0))
    assert question.is_lifted_by(BudgetRaised(scope="both", tokens=9))
    log.append(ApprovalDecided(approval=approval, decision="approve"), turn=turn)
    assert ledger(log.events).question is None
    ask(log, turn, 2)
    assert ledger(log.events).asked == 2
    log.end(turn, "out_of_budget")
    assert (ledger(log.events).question, ledger(log.events).asked) == (None, 0)


@pytest.mark.parametrize("has_calls", [False, True], ids=["before an answer", "before a tool"])
def test_all_of_a_turn_waits_for_its_budget_and_ends_if_nobody_raises_it(has_calls: bool) -> None:
    log = Log()
    turn = begun(log)
    if has_calls:
        log.answered(turn, 1, answer("", call("1")))
    approval = ask(log, turn)

    def plan(now: datetime = NOW) -> Wait | Finish | None:
        found = decide(log.state(), {}, now=to_text(now))
        return found.wait or found.finish

    assert plan() == Wait(until=LATER)
    log.park(turn)
    assert plan() == Wait(until=LATER, is_parked=True)
    log.message("Well?")
    assert plan() == Wait(until=LATER), "a message raises nothing"
    late = plan(NOW + timedelta(hours=2))
    assert isinstance(late, Finish)
    assert late.outcome == "out_of_budget"
    said = {}
    for decision in ("approve", "deny"):
        data = ApprovalDecided.model_validate({"approval": approval, "decision": decision})
        decided = log.events[-1]._replace(
            seq=len(log.events) + 1, type=data.type, v=data.v, turn=turn, data_json=data.model_dump_json()
        )
        said[decision] = decide(fold_turn(log.conversation, [*log.events, decided]), {}, now=to_text(NOW))
    assert said["approve"].tools if has_calls else said["approve"].model
    assert said["deny"].finish == Finish(
        outcome="out_of_budget", reason="The budget is used up, and a person did not raise it."
    )
