"""Subagents as the logs have them: what a call waits for, whose child a conversation is, how many there may be."""

from collections.abc import Mapping
from typing import Any

import pytest

from outlive.base import ConversationId, FencedError, StepId, TurnId, new_turn_id
from outlive.conversation.events import ConversationCreated, SubagentFinished, SubagentStarted
from outlive.loop.decide import Runs, decide
from outlive.loop.fold import fold_turn, step_id
from outlive.loop.plan import Plan, Wait
from outlive.loop.state import Call, Child, LastAnswer
from outlive.loop.subagents.link import (
    DEPTH,
    OPEN,
    Link,
    child_of,
    children_in,
    ending_of,
    link_in,
    link_of,
    progress_of,
    refusal_of,
    told,
)
from unit.loop.logs import Log, answer, call, finished

RUNS: Mapping[str, Runs] = {"subagent": "parallel", "read": "parallel", "shell": "in_turn"}


@pytest.fixture
def log() -> Log:
    return Log(ConversationCreated(agent="coder"))


def begun(log: Log, *names: str) -> TurnId:
    turn = log.message()
    log.begin(turn)
    log.answered(turn, 1, answer("", *(call(str(n), name) for n, name in enumerate(names, 2))))
    return turn


def beget(log: Log, turn: TurnId, n: int, **more: Any) -> ConversationId:
    log.request(turn, n, call(str(n), "subagent"))
    child = child_of(step_id(turn, n))
    log.append(SubagentStarted(conversation=child, step=step_id(turn, n), **more), turn=turn)
    return child


def part(log: Log, child: ConversationId, turn: TurnId | None = None) -> None:
    log.append(SubagentFinished(conversation=child, outcome="done"), turn=turn)


def planned(log: Log) -> Plan:
    return decide(log.state(), RUNS, now="2031")


def runs(log: Log) -> list[str]:
    return [step.call for step in planned(log).tools]


def test_calls_that_began_subagents_wait_for_them_and_each_goes_on_when_its_own_has_ended(log: Log) -> None:
    turn = begun(log, "subagent", "subagent", "shell")
    assert runs(log) == ["2", "3"], "both begin"
    first = beget(log, turn, 2)
    assert runs(log) == ["3"]
    second = beget(log, turn, 3)
    assert planned(log).wait == Wait(until=None, is_parked=True), "nothing is to be parked: it goes on in them"
    assert log.summary.state == "running"
    part(log, second, turn)
    assert runs(log) == ["3"]
    log.finish_tool(turn, 3, finished("3"))
    assert planned(log).wait is not None
    part(log, first, turn)
    assert runs(log) == ["2"]
    log.finish_tool(turn, 2, finished("2"))
    assert runs(log) == ["4"]


def test_an_end_that_is_told_before_the_beginning_counts(log: Log) -> None:
    turn = begun(log, "subagent")
    part(log, child_of(step_id(turn, 2)), turn)
    beget(log, turn, 2)
    assert runs(log) == ["2"]
    assert log.state().children == ()


def test_a_message_does_not_end_the_wait_for_a_subagent(log: Log) -> None:
    turn = begun(log, "subagent")
    beget(log, turn, 2)
    log.message("And?")
    assert planned(log).wait is not None


def test_a_detached_one_is_not_waited_for_and_stays_known_beyond_its_turn(log: Log) -> None:
    turn = begun(log, "subagent")
    child = beget(log, turn, 2, detached=True)
    assert runs(log) == ["2"]
    log.finish_tool(turn, 2, finished("2"))
    log.end(turn)
    assert [each.conversation for each in log.state().children] == [child]
    part(log, child)
    assert log.state().children == ()


def test_a_fork_has_no_subagents(log: Log) -> None:
    turn = begun(log, "subagent")
    beget(log, turn, 2)
    fork = Log(ConversationCreated(agent="coder"), shared=tuple(log.events))
    assert fold_turn(fork.conversation, fork.events).children == ()
    assert children_in(fork.events) == []


def test_a_turn_that_is_over_begins_none(log: Log) -> None:
    turn = begun(log, "subagent")
    log.end(turn, "interrupted")
    with pytest.raises(FencedError):
        log.append(SubagentStarted(conversation="conv_1", step=step_id(turn, 2)), turn=turn)


def link(step: StepId, **more: Any) -> Link:
    given = {"conversation": "conv_1", "turn": "turn_1", "step": step, "call": "2", "start": 5, "attempt": 1}
    return Link.model_validate({"detached": False, "machine": "same", "depth": 1, **given, **more})


def test_whose_child_it_is_counts_only_if_its_id_follows_from_that_step() -> None:
    step = step_id(new_turn_id(), 2)
    mine = link(step)
    metadata: dict[str, Any] = {"subagent": mine.model_dump()}
    assert link_of(child_of(step), metadata) == mine
    other = child_of(step_id(new_turn_id(), 2))
    assert link_of(other, metadata) is None, "what a person wrote, or a fork of a subagent"
    assert link_of(other, {}) is None
    assert link_of(other, {"subagent": "yes"}) is None
    assert link_in(other, Log(ConversationCreated(metadata=metadata)).events) is None
    assert link_in(other, []) is None


def calls_of(turn: TurnId, count: int) -> LastAnswer:
    calls = tuple(Call(step_id(turn, n), n, str(n), "subagent") for n in range(2, 2 + count))
    return LastAnswer(step_id(turn, 1), 1, 5, 4, "tool_use", calls)


def test_there_are_only_so_many_and_so_deep_whatever_the_order_in_which_they_begin() -> None:
    turn = new_turn_id()
    calls = calls_of(turn, OPEN[0] + 1)
    refused = [refusal_of(None, (), calls, each.step) for each in calls.calls]
    assert [each is not None for each in refused] == [False] * OPEN[0] + [True]
    at_work = tuple(Child(child_of(each.step), turn, False, "same") for each in calls.calls[:-1])
    assert refusal_of(None, at_work, calls, calls.calls[0].step) is None, "its own does not count"
    assert refusal_of(None, at_work, calls, calls.calls[-1].step) is not None
    for depth in range(1, DEPTH):
        parent = link(step_id(turn, 99), depth=depth)
        few = [refusal_of(parent, (), calls, each.step) for each in calls.calls]
        assert [each is None for each in few].count(True) == OPEN[depth]
    deep = refusal_of(link(step_id(turn, 99), depth=DEPTH), (), None, calls.calls[0].step)
    assert deep is not None
    assert "3 deep" in deep


def test_what_came_of_one_is_its_last_answer_or_why_it_has_none(log: Log) -> None:
    turn = begun(log, "read")
    assert ending_of(log.events, turn) is None
    log.tool(turn, 2, call("2", "read"))
    log.answered(turn, 3, answer("Forty-two."))
    log.end(turn)
    later = log.message()
    log.begin(later)
    log.answered(later, 1, answer("Something else."))
    log.end(later, "failed", "No more.")
    first, second = ending_of(log.events, turn), ending_of(log.events, later)
    assert first is not None
    assert second is not None
    assert told(first) == "Forty-two."
    assert told(second) == "The subagent did not finish (failed). No more.\nThe last it said: Something else."
    assert told(first._replace(text="")) == "(it said nothing)"


def test_its_progress_is_one_line_for_each_thing_with_its_place(log: Log) -> None:
    assert progress_of(log.events) == (0, "")
    turn = begun(log, "read")
    log.request(turn, 2, call("2", "read"))
    assert progress_of(log.events) == (len("thinks\n"), "read begins\n")
    log.finish_tool(turn, 2, finished("2"))
    assert progress_of(log.events) == (len("thinks\nread begins\n"), "finished\n")


def test_all_that_a_conversation_began_are_listed_in_their_order(log: Log) -> None:
    turn = begun(log, "subagent", "subagent")
    first, second = beget(log, turn, 2, machine="fork"), beget(log, turn, 3)
    part(log, second, turn)
    assert children_in(log.events) == [Child(first, turn, False, "fork"), Child(second, turn, False, "same", "done")]
