"""What becomes of a race's record, and what its contestants came to."""

import pytest

from outlive.base import ConflictError, InvalidError, derive
from outlive.conversation.events import ModelResponded, Usage
from outlive.loop.races.race import choose, fold_result, let_go, started
from outlive.testing.races import a_race
from unit.loop.logs import AT, Log, call

LATER = "2031-01-01T00:00:00.000000Z"


def test_all_ids_of_a_race_are_given_by_its_own() -> None:
    race = a_race()
    assert len(set(race.conversations)) == 3
    assert race.conversations == a_race(id=race.id).conversations
    assert race.conversations[0] == derive("conv", race.operation(0))


def test_the_first_choice_is_for_good() -> None:
    race = a_race()
    first, second, _ = race.conversations
    with pytest.raises(ConflictError, match="still being started"):
        choose(race, first, LATER)
    running = started(race, {1: "no room"}, LATER)
    assert (running.state, running.contestants[1].trouble, running.is_settled) == ("running", "no room", True)
    with pytest.raises(InvalidError):
        choose(running, race.conversation, LATER)
    with pytest.raises(ConflictError, match="no room"):
        choose(running, second, LATER)
    chosen = choose(running, first, LATER)
    assert (chosen.state, chosen.chosen, chosen.is_settled) == ("letting_go", first, False)
    assert chosen.losers == race.conversations[1:]
    assert choose(chosen, first, LATER) == chosen
    with pytest.raises(ConflictError, match="decided"):
        choose(chosen, second, LATER)
    over = let_go(chosen, LATER)
    assert (over.state, over.is_settled) == ("chosen", True)
    assert let_go(over, AT) == started(over, {}, AT) == choose(over, first, AT) == over
    assert let_go(running, AT) == running


def answer(text: str, cost: float | None, *calls: str) -> ModelResponded:
    usage = Usage(input_tokens=10, output_tokens=2, cost_usd=cost)
    return ModelResponded(text=text, tool_calls=[call(each) for each in calls], model="demo:", usage=usage)


def test_what_a_contestant_came_to_is_in_its_log() -> None:
    log = Log()
    assert fold_result(log.events).turn is None
    turn = log.message()
    log.begin(turn)
    log.answered(turn, 1, answer("I look.", 0.25, "a"))
    log.tool(turn, 2, call("a"))
    open_ = fold_result(log.events)
    assert (open_.turn, open_.outcome, open_.answer, open_.steps, open_.cost) == (turn, None, "I look.", 2, 0.25)
    log.answered(turn, 3, answer("Done.", 0.5))
    log.end(turn, "failed", "why")
    ended = fold_result(log.events)
    assert (ended.outcome, ended.reason, ended.answer, ended.steps, ended.cost) == ("failed", "why", "Done.", 3, 0.75)
    assert (ended.usage["input_tokens"], ended.usage["output_tokens"]) == (20, 4)
    again = log.message()
    log.begin(again)
    log.answered(again, 1, answer("", None))
    told = fold_result(log.events)
    assert (told.turn, told.outcome, told.reason, told.answer, told.cost) == (again, None, None, "Done.", None)
