"""Which model is asked next, from the log alone."""

import pytest

from outlive.base import TurnId
from outlive.conversation.events import ConversationCreated, ModelChanged, ModelFallback, ModelScope, Parent
from outlive.loop.decide import decide
from outlive.loop.fold import fold_turn, step_id
from outlive.loop.plan import Begin
from outlive.loop.state import OpenTurn
from outlive.loop.steering import model_change
from unit.loop.logs import Log, answer, call


@pytest.fixture
def log() -> Log:
    return Log(ConversationCreated(agent="coder", model="demo:made"))


@pytest.fixture
def turn(log: Log) -> TurnId:
    turn = log.message()
    log.begin(turn)
    return turn


def now(log: Log) -> OpenTurn:
    turn = log.state().turn
    assert turn is not None
    return turn


def change(log: Log, turn: TurnId | None, model: str, scope: ModelScope = "turn") -> None:
    log.append(ModelChanged(model=model, scope=scope), turn=turn)


def fall_back(log: Log, turn: TurnId, model: str, before: str, attempt: int) -> None:
    step = step_id(turn, 1)
    fallback = ModelFallback(
        model=model, before=before, step=step, attempt=attempt, code="model.outage", reason="It is away."
    )
    log.append(fallback, turn=turn)


def test_a_turn_asks_what_it_was_bound_to_until_the_log_says_otherwise(log: Log, turn: TurnId) -> None:
    assert now(log).model == "demo:"
    change(log, turn, "demo:big")
    assert now(log).model == "demo:big"
    assert now(log).bound is not None
    assert log.state().model == "demo:made", "for this turn alone"
    assert decide(log.state(), {}).model is not None
    log.answered(turn, 1, answer())
    log.end(turn)
    log.begin(log.message())
    assert now(log).model == "demo:", "the next turn begins with the first again"


def test_a_turn_asks_what_it_began_with_though_another_was_wanted_before_it_began(log: Log) -> None:
    turn = log.message()
    change(log, turn, "demo:wanted")
    log.message(model="demo:newest")
    plan = decide(log.state(), {})
    assert plan.begin is not None
    assert plan.begin.model == "demo:newest"
    log.begin(turn)
    assert now(log).model == "demo:", "what the turn began with, which had seen all of it"


def test_a_fallback_holds_to_the_end_of_the_turn_and_the_next_one_begins_with_the_first(log: Log, turn: TurnId) -> None:
    for attempt in (1, 2, 3):
        log.start(turn, 1, attempt)
    fall_back(log, turn, "demo:two", "demo:", 4)
    assert (now(log).model, now(log).away) == ("demo:two", ("demo:",))
    log.start(turn, 1, 4)
    log.respond(turn, 1, answer("", call("a")), attempt=4)
    log.tool(turn, 2, call("a"))
    assert now(log).model == "demo:two", "it holds"
    log.answered(turn, 3, answer())
    log.end(turn)
    log.begin(log.message())
    assert (now(log).model, now(log).away) == ("demo:", ())


def test_attempts_are_counted_by_the_model_that_was_asked(log: Log, turn: TurnId) -> None:
    step = step_id(turn, 1)
    assert now(log).attempts_of_model(step) == 0
    log.start(turn, 1, 1)
    log.start(turn, 1, 2)
    assert now(log).attempts_of_model(step) == 2
    fall_back(log, turn, "demo:two", "demo:", 3)
    assert now(log).attempts_of_model(step) == 0
    log.start(turn, 1, 3)
    assert now(log).attempts_of_model(step) == 1
    change(log, turn, "demo:three")
    assert (now(log).attempts_of_model(step), now(log).away) == (0, ()), "a person's word begins anew"


def test_what_is_wanted_for_the_conversation_holds_now_and_in_later_turns_and_in_forks(log: Log, turn: TurnId) -> None:
    change(log, turn, "demo:big", "conversation")
    assert (now(log).model, log.state().model) == ("demo:big", "demo:big")
    log.answered(turn, 1, answer())
    log.end(turn)
    change(log, None, "demo:bigger", "conversation")
    log.message()
    assert decide(log.state(), {}).begin == Begin(agent="coder", model="demo:bigger")
    shared = tuple(log.events)
    fork = Log(ConversationCreated(parent=Parent(conversation=log.conversation, at=len(shared))), shared)
    assert fold_turn(fork.conversation, fork.events).model == "demo:bigger"


def test_a_turn_that_has_not_begun_begins_with_what_was_asked_for_last(log: Log) -> None:
    turn = log.message(model="demo:message")
    assert decide(log.state(), {}).begin == Begin(agent="coder", model="demo:message")
    change(log, turn, "demo:changed")
    assert decide(log.state(), {}).begin == Begin(agent="coder", model="demo:changed")
    log.message(model="demo:later")
    assert decide(log.state(), {}).begin == Begin(agent="coder", model="demo:later")


def test_a_change_of_another_turn_changes_nothing_in_this_one(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer())
    log.end(turn)
    other = log.message()
    log.begin(other)
    change(log, turn, "demo:late")
    assert now(log).model == "demo:"


def test_what_is_so_already_is_not_said_again(log: Log, turn: TurnId) -> None:
    assert model_change(log.state(), "demo:", "turn") is None
    assert model_change(log.state(), "demo:made", "conversation") is not None, "the turn asks another one"
    said = model_change(log.state(), "demo:big", "turn")
    assert said == ModelChanged(model="demo:big", before="demo:", scope="turn")
    log.append(said, turn=turn)
    assert model_change(log.state(), "demo:big", "turn") is None
    whole = model_change(log.state(), "demo:big", "conversation")
    assert whole == ModelChanged(model="demo:big", before="demo:made", scope="conversation")
    log.append(whole, turn=turn)
    assert model_change(log.state(), "demo:big", "conversation") is None
