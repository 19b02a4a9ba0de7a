"""What to do next: each row of the table."""

from collections.abc import Mapping

import pytest

from outlive.base import TurnId
from outlive.conversation.events import ConversationCreated, ModelResponded, TurnPaused, TurnResumed
from outlive.loop.decide import Limits, Runs, decide
from outlive.loop.fold import compaction_id, step_id
from outlive.loop.plan import Begin, CompactStep, Finish, ModelStep, Plan, ToolStep, Wait
from unit.loop.logs import Log, answer, call, finished

RUNS: Mapping[str, Runs] = {"read": "parallel", "look": "parallel", "shell": "in_turn"}


@pytest.fixture
def log() -> Log:
    return Log(ConversationCreated(agent="coder", model="demo:small"))


@pytest.fixture
def turn(log: Log) -> TurnId:
    turn = log.message()
    log.begin(turn)
    return turn


def planned(log: Log, limits: Limits | None = None) -> Plan:
    plan = decide(log.state(), RUNS, limits or Limits())
    assert (plan.conversation, plan.seq) == (log.conversation, len(log.events))
    return plan


def model_step(turn: TurnId, n: int) -> ModelStep:
    return ModelStep(step=step_id(turn, n), n=n)


def test_without_a_turn_there_is_nothing_to_do(log: Log) -> None:
    assert planned(log).nothing


def test_a_message_begins_its_turn_with_what_was_asked_for(log: Log) -> None:
    turn = log.message()
    assert planned(log).turn == turn
    assert planned(log).begin == Begin(agent="coder", model="demo:small")
    log.message(model="demo:big")
    log.message()
    assert planned(log).begin == Begin(agent="coder", model="demo:big")


def test_a_turn_that_began_asks_the_model(log: Log, turn: TurnId) -> None:
    assert planned(log).model == model_step(turn, 1)


def test_a_model_step_that_was_started_and_not_sealed_is_planned_again_as_the_same(log: Log, turn: TurnId) -> None:
    log.start(turn, 1)
    log.start(turn, 1, attempt=2)
    assert planned(log).model == model_step(turn, 1)


def test_calls_run_in_groups_that_are_independent_and_in_order(log: Log, turn: TurnId) -> None:
    calls = [
        call("1", "read"),
        call("2", "look"),
        call("3", "shell"),
        call("4", "unheard of"),
        call("5", "read"),
        call("6", "look"),
    ]
    log.answered(turn, 1, answer("", *calls))
    groups = []
    while tools := planned(log).tools:
        groups.append([step.call for step in tools])
        for step in tools:
            n = int(step.call) + 1
            assert step == ToolStep(step=step_id(turn, n), call=step.call, name=calls[int(step.call) - 1].name)
            log.tool(turn, n, calls[int(step.call) - 1])
    assert groups == [["1", "2"], ["3"], ["4"], ["5", "6"]]
    assert planned(log).model == model_step(turn, 8)


def test_a_group_is_only_as_big_as_may_run_at_once(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer("", *(call(str(number), "read") for number in range(5))))
    assert [step.call for step in planned(log, Limits(at_once=3)).tools] == ["0", "1", "2"]


def test_of_a_group_only_what_has_no_result_is_run(log: Log, turn: TurnId) -> None:
    calls = [call(str(number), "read") for number in range(1, 4)]
    log.answered(turn, 1, answer("", *calls))
    log.request(turn, 2, calls[0])
    log.tool(turn, 3, calls[1])
    assert [step.call for step in planned(log).tools] == ["1", "3"]


def test_a_message_waits_until_the_calls_have_results(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer("", call("a")))
    log.message("hurry")
    assert planned(log).tools
    log.tool(turn, 2, call("a"))
    assert planned(log).model == model_step(turn, 3)


def test_an_answer_without_calls_ends_the_turn(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer())
    assert planned(log).finish == Finish(outcome="done")


def test_a_message_that_the_answer_did_not_see_keeps_the_turn_going(log: Log, turn: TurnId) -> None:
    log.start(turn, 1)
    log.message("one more thing")
    log.respond(turn, 1, answer())
    assert planned(log).model == model_step(turn, 2)
    log.answered(turn, 2, answer())
    assert planned(log).finish == Finish(outcome="done")


@pytest.mark.parametrize(
    ("said", "outcome", "reason"),
    [
        (answer("No.", stop_reason="refusal"), "failed", "refused"),
        (answer("And th", stop_reason="max_tokens"), "done", "cut off"),
    ],
)
def test_an_answer_that_is_none_says_so(
    log: Log, turn: TurnId, said: ModelResponded, outcome: str, reason: str
) -> None:
    log.answered(turn, 1, said)
    finish = planned(log).finish
    assert finish is not None
    assert finish.outcome == outcome
    assert reason in (finish.reason or "")


def test_after_a_refusal_a_new_message_is_answered(log: Log, turn: TurnId) -> None:
    log.start(turn, 1)
    log.message("something else, then")
    log.respond(turn, 1, answer("No.", stop_reason="refusal"))
    assert planned(log).model == model_step(turn, 2)


def test_a_turn_that_had_all_its_steps_fails_and_says_why(log: Log, turn: TurnId) -> None:
    limits = Limits(steps=3)
    log.answered(turn, 1, answer("", call("a")))
    log.tool(turn, 2, call("a"))
    assert planned(log, limits).model == model_step(turn, 3)
    log.answered(turn, 3, answer("", call("b")))
    assert planned(log, limits).tools, "what was asked for is still done"
    log.tool(turn, 4, call("b"))
    finish = planned(log, limits).finish
    assert finish is not None
    assert (finish.outcome, finish.reason) == ("failed", "The turn took 3 steps, which is its limit.")


def test_a_turn_may_end_with_its_last_step(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer())
    assert planned(log, Limits(steps=1)).finish == Finish(outcome="done")


def test_an_interrupt_ends_the_turn_whatever_it_was_at(log: Log) -> None:
    turn = log.message()
    log.begin(turn)
    log.answered(turn, 1, answer("", call("a")))
    log.interrupt(turn)
    log.message("no, wait")
    assert planned(log).finish == Finish(outcome="interrupted")


def test_a_turn_that_is_interrupted_before_it_began_ends_too(log: Log) -> None:
    turn = log.message()
    log.interrupt(turn)
    assert planned(log).finish == Finish(outcome="interrupted")


def test_a_message_after_an_interrupt_begins_a_new_turn(log: Log, turn: TurnId) -> None:
    log.interrupt(turn)
    log.message("do this instead")
    log.end(turn, "interrupted")
    assert planned(log).begin is not None
    assert planned(log).turn != turn


def test_a_paused_turn_begins_nothing(log: Log, turn: TurnId) -> None:
    log.append(TurnPaused(), turn=turn)
    assert planned(log).wait == Wait()
    log.park(turn)
    assert planned(log).wait == Wait(is_parked=True)
    log.message("well?")
    assert planned(log).wait == Wait(), "a message does not resume it"
    log.append(TurnResumed(), turn=turn)
    assert planned(log).model == model_step(turn, 1)


def test_a_paused_turn_finishes_what_has_begun_and_ends_if_nothing_is_left(log: Log, turn: TurnId) -> None:
    calls = [call("1", "read"), call("2", "read")]
    log.start(turn, 1)
    log.append(TurnPaused(), turn=turn)
    assert planned(log).model == model_step(turn, 1)
    log.respond(turn, 1, answer("", *calls))
    assert planned(log).wait == Wait()
    log.append(TurnResumed(), turn=turn)
    log.request(turn, 2, calls[0])
    log.append(TurnPaused(), turn=turn)
    assert [step.call for step in planned(log).tools] == ["1"]
    log.finish_tool(turn, 2, finished("1"))
    assert planned(log).wait == Wait()
    log.append(TurnResumed(), turn=turn)
    log.tool(turn, 3, calls[1])
    log.answered(turn, 4, answer())
    log.append(TurnPaused(), turn=turn)
    assert planned(log).finish == Finish(outcome="done")


def test_a_paused_turn_can_be_interrupted(log: Log, turn: TurnId) -> None:
    log.append(TurnPaused(), turn=turn)
    log.interrupt(turn)
    assert planned(log).finish == Finish(outcome="interrupted")


def compact_step(turn: TurnId, requested: int) -> CompactStep:
    return CompactStep(step=compaction_id(turn, requested), requested=requested)


def test_a_compaction_comes_before_the_next_answer_and_moves_no_step(log: Log, turn: TurnId) -> None:
    asked = log.ask_to_compact(turn, "full")
    log.ask_to_compact(turn)
    assert planned(log).compact == compact_step(turn, asked), "the first one that was asked for"
    log.compact(turn, asked)
    assert planned(log).model == model_step(turn, 1)


def test_a_compaction_waits_for_the_results_of_calls_and_comes_before_the_end(log: Log, turn: TurnId) -> None:
    log.answered(turn, 1, answer("", call("1", "read")))
    asked = log.ask_to_compact(turn)
    assert [step.call for step in planned(log).tools] == ["1"]
    log.tool(turn, 2, call("1", "read"))
    assert planned(log).compact == compact_step(turn, asked)
    log.compact(turn, asked)
    log.answered(turn, 3, answer())
    again = log.ask_to_compact(turn)
    assert planned(log).compact == compact_step(turn, again)
    log.compact(turn, again, outcome="failed", reason="no")
    assert planned(log).finish == Finish(outcome="done"), "one that failed is over too"


def test_a_compaction_that_was_asked_for_while_no_turn_was_open_is_the_first_step_of_the_next(log: Log) -> None:
    asked = log.ask_to_compact()
    assert planned(log).nothing
    turn = log.message("Go on")
    assert planned(log).begin is not None
    log.begin(turn)
    assert planned(log).compact == compact_step(turn, asked)


def test_what_the_loop_asked_for_ends_with_its_turn_and_what_a_person_asked_for_does_not(
    log: Log, turn: TurnId
) -> None:
    log.ask_to_compact(turn, "full")
    log.interrupt(turn)
    log.end(turn, "interrupted")
    following = log.message("Again")
    log.begin(following)
    assert planned(log).model == model_step(following, 1)
    asked = log.ask_to_compact(following)
    log.interrupt(following)
    log.end(following, "interrupted")
    last = log.message("And again")
    log.begin(last)
    assert planned(log).compact == compact_step(last, asked)


def test_a_fork_does_not_compact_what_its_parent_was_asked_to(log: Log, turn: TurnId) -> None:
    log.ask_to_compact(turn)
    fork = Log(ConversationCreated(), tuple(log.events))
    following = fork.message("Hi")
    fork.begin(following)
    assert planned(fork).model == model_step(following, 1)


def test_a_paused_turn_begins_no_compaction(log: Log, turn: TurnId) -> None:
    log.ask_to_compact(turn)
    log.append(TurnPaused(), turn=turn)
    assert planned(log).wait == Wait()


def test_the_word_of_a_provider_is_heeded_once_at_a_step(log: Log, turn: TurnId) -> None:
    step = log.start(turn, 1)
    asked = log.ask_to_compact(turn, "too_long", step=step, tokens=9_000)
    state = log.state().turn
    assert state is not None
    assert state.compaction is not None
    assert (state.compaction.tokens, [*state.too_long]) == (9_000, [step])
    log.compact(turn, asked)
    assert planned(log).model == model_step(turn, 1), "the step is tried again"
