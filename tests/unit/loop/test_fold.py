"""What a log says about the turn at hand."""

import pytest

from outlive.base import StepId, TurnId, derive
from outlive.conversation.events import ConversationCreated, MachineAttached, MachineLost, Parent
from outlive.loop.fold import TurnFold, fold_turn, step_id
from outlive.loop.state import Binding, Call, LastAnswer, OpenTurn
from unit.loop.logs import Log, answer, call, finished


@pytest.fixture
def log() -> Log:
    return Log(ConversationCreated(agent="coder", environment="python", model="demo:small"))


def open_turn(log: Log) -> OpenTurn:
    turn = log.state().turn
    assert turn is not None
    return turn


def newest_answer(log: Log) -> LastAnswer:
    found = open_turn(log).answer
    assert found is not None
    return found


def begun(log: Log) -> TurnId:
    turn = log.message()
    log.begin(turn)
    return turn


def test_a_conversation_that_nobody_spoke_in_has_no_turn(log: Log) -> None:
    state = log.state()
    assert (state.seq, state.turn, state.waiting, state.machine) == (1, None, (), None)
    assert (state.agent, state.environment, state.model) == ("coder", "python", "demo:small")


def test_a_message_opens_the_turn_that_it_carries_and_waits(log: Log) -> None:
    turn = log.message(model="demo:big")
    log.message()
    state = log.state()
    assert open_turn(log) == OpenTurn(turn)
    assert [(message.seq, message.model) for message in state.waiting] == [(2, "demo:big"), (3, None)]


def test_a_turn_is_bound_when_it_begins(log: Log) -> None:
    turn = begun(log)
    assert open_turn(log) == OpenTurn(turn, Binding("coder", 3, "demo:"))


def test_an_answer_has_seen_what_came_before_the_attempt_that_was_sealed(log: Log) -> None:
    turn = begun(log)
    log.start(turn, 1)
    log.message("while attempt 1 ran")
    log.start(turn, 1, attempt=2)
    log.message("while attempt 2 ran")
    log.respond(turn, 1, answer(), attempt=2)
    assert [message.seq for message in log.state().waiting] == [7]
    assert (newest_answer(log).start, newest_answer(log).seq) == (6, 8)
    assert open_turn(log).attempts == {step_id(turn, 1): 2}


def test_calls_have_the_places_behind_their_answer_whatever_order_they_run_in(log: Log) -> None:
    turn = begun(log)
    one, two, three = call("a"), call("b", "search"), call("c", "search")
    log.answered(turn, 1, answer("Let me look.", one, two, three))
    log.tool(turn, 4, three)
    log.request(turn, 2, one)
    assert newest_answer(log).calls == (
        Call(step_id(turn, 2), 2, "a", "shell", is_requested=True),
        Call(step_id(turn, 3), 3, "b", "search"),
        Call(step_id(turn, 4), 4, "c", "search", is_requested=True, outcome="finished"),
    )
    assert (open_turn(log).next_n, open_turn(log).model_steps) == (5, 1)
    assert newest_answer(log).next_n == 5


def test_a_retried_call_is_requested_still_and_finished_once(log: Log) -> None:
    turn = begun(log)
    asked = call("a")
    log.answered(turn, 1, answer("", asked))
    log.request(turn, 2, asked)
    log.request(turn, 2, asked, attempt=2)
    log.finish_tool(turn, 2, finished("a", outcome="lost"), attempt=2)
    (only,) = newest_answer(log).calls
    assert (only.is_requested, only.outcome) == (True, "lost")
    assert open_turn(log).attempts[step_id(turn, 2)] == 2


def test_a_later_answer_puts_the_calls_before_it_away(log: Log) -> None:
    turn = begun(log)
    for n in (1, 3):  # with the same id, as some servers give
        log.answered(turn, n, answer("", call("a")))
        assert [each.outcome for each in newest_answer(log).calls] == [None]
        log.tool(turn, n + 1, call("a"))
        assert [each.outcome for each in newest_answer(log).calls] == ["finished"]
    assert newest_answer(log).n == 3


def test_of_two_calls_with_one_id_each_is_finished_by_its_own_step(log: Log) -> None:
    turn = begun(log)
    log.answered(turn, 1, answer("", call("a"), call("a")))
    log.tool(turn, 3, call("a"))
    assert [each.outcome for each in newest_answer(log).calls] == [None, "finished"]


def test_calls_of_a_log_that_other_hands_wrote_are_found_by_their_id(log: Log) -> None:
    turn = begun(log)
    log.answered(turn, 1, answer("", call("a"), call("b")))
    log.tool(turn, 77, call("b"))
    assert [each.outcome for each in newest_answer(log).calls] == [None, "finished"]


def test_the_end_of_a_turn_leaves_nothing_open(log: Log) -> None:
    turn = begun(log)
    log.answered(turn, 1, answer())
    log.end(turn)
    assert (log.state().turn, log.state().waiting) == (None, ())


def test_an_interrupt_settles_the_messages_that_came_before_it(log: Log) -> None:
    turn = begun(log)
    log.interrupt(turn)
    assert open_turn(log).is_interrupted
    assert log.state().waiting == ()
    log.end(turn, "interrupted")
    assert log.state().turn is None


def test_a_message_between_an_interrupt_and_the_end_opens_a_turn_of_its_own(log: Log) -> None:
    turn = begun(log)
    log.interrupt(turn)
    assert log.message("but do this") == turn
    assert open_turn(log).id == turn
    log.end(turn, "interrupted")
    opened = open_turn(log)
    assert opened == OpenTurn(TurnId(derive("turn", turn, log.state().seq)))
    assert len(log.state().waiting) == 1
    after = log.message("and that")
    assert open_turn(log).id == after, "who sent it was told this id"
    assert len(log.state().waiting) == 2


def test_what_happens_to_a_turn_that_is_over_changes_nothing(log: Log) -> None:
    turn = begun(log)
    log.start(turn, 1)
    log.end(turn, "failed", "no key")
    log.append(MachineLost(machine="mach_1"), turn=turn)
    assert log.state().turn is None


def test_the_machine_is_the_one_that_was_attached(log: Log) -> None:
    log.append(MachineAttached(machine="mach_1"))
    assert log.state().machine == "mach_1"


def test_a_fork_goes_on_without_the_turn_and_the_machine_of_its_parent(log: Log) -> None:
    turn = begun(log)
    log.append(MachineAttached(machine="mach_1"))
    log.start(turn, 1)
    parent = Parent(conversation=log.conversation, at=len(log.events))
    fork = Log(ConversationCreated(model="demo:other", parent=parent), tuple(log.events))
    state = fork.state()
    assert (state.turn, state.waiting, state.machine) == (None, (), None)
    assert (state.agent, state.environment, state.model) == ("coder", "python", "demo:other")
    again = fork.message()
    assert again != turn
    assert open_turn(fork) == OpenTurn(again)


def test_a_message_that_carries_no_turn_opens_one_that_is_the_same_each_time(log: Log) -> None:
    log.message()
    log.events[-1] = log.events[-1]._replace(turn=None)
    assert open_turn(log).id == derive("turn", log.events[-1].id)


def test_folding_goes_on_where_it_was_and_takes_no_event_twice(log: Log) -> None:
    turn = begun(log)
    log.answered(turn, 1, answer("", call("a")))
    log.tool(turn, 2, call("a"))
    fold = TurnFold(log.conversation)
    for event in log.events:
        fold.take(event)
        fold.take(event)
        fold.take(log.events[0])
        assert fold.seq == event.seq
        assert fold.state() == fold_turn(log.conversation, log.events[: event.seq])


def test_what_was_handed_out_does_not_change_with_later_events(log: Log) -> None:
    turn = begun(log)
    before = log.state()
    kept = TurnFold(log.conversation)
    for event in log.events:
        kept.take(event)
    state = kept.state()
    log.start(turn, 1)
    kept.take(log.events[-1])
    assert state == before
    assert kept.state().turn != state.turn


def test_step_ids_follow_from_the_turn_and_the_place() -> None:
    turn = TurnId("turn_0194f0a1b2c37d4e8f90a1b2c3d4e5f7")
    assert step_id(turn, 1) == StepId(derive("step", turn, 1)) != step_id(turn, 2)
