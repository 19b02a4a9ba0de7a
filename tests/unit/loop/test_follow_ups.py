"""Messages that wait: which they are, what may be done with them, and what the model is told."""

from collections.abc import Mapping

import pytest

from outlive.base import ConflictError, InvalidError, MessageId, NotFoundError, TurnId, derive, new_message_id
from outlive.conversation.approvals import digest_of
from outlive.conversation.events import (
    ApprovalDecided,
    ApprovalRequested,
    BudgetQuestion,
    EventData,
    MessageHurried,
    MessageSent,
    SubagentStarted,
    WaitStarted,
)
from outlive.conversation.projection import Transcript
from outlive.loop.context import Bounds, build_context
from outlive.loop.decide import Runs, decide
from outlive.loop.fold import step_id
from outlive.loop.follow_ups import TEXT_SHOWN, QueueFold
from outlive.loop.holds import undone_approvals
from outlive.loop.models.messages import Message, Note, ToolResultMessage, UserMessage
from outlive.loop.plan import Finish, Plan
from outlive.loop.replays.choosing import turns_of
from unit.loop.logs import AT, Log, answer, call, finished

RUNS: Mapping[str, Runs] = {"read": "parallel", "look": "parallel", "shell": "in_turn"}
SHELL = call("a", "shell", command="make")


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def turn(log: Log) -> TurnId:
    """One whose first answer is being asked for."""
    turn = log.message("Build it")
    log.begin(turn)
    log.start(turn, 1)
    return turn


def send(log: Log, text: str, *, is_hurried: bool = False) -> MessageId:
    message = new_message_id()
    sent: list[EventData] = [MessageSent(message=message, text=text)]
    log.append(*sent, *([MessageHurried(message=message)] if is_hurried else []), turn=TurnId("turn_new"))
    return message


def fold_of(log: Log) -> QueueFold:
    fold = QueueFold(log.conversation)
    for event in [*log.events, *log.events]:  # the second time changes nothing
        fold.take(event)
    return fold


def queued(log: Log) -> list[str]:
    return [each.text for each in fold_of(log).queue()]


def do(log: Log, news: EventData | None) -> None:
    assert news is not None
    state = log.state()
    log.append(news, turn=state.turn.id if state.turn else None, expect=state.seq)


def planned(log: Log) -> Plan:
    return decide(log.state(), RUNS, now=AT)


def told(log: Log, before: int | None = None) -> list[Message]:
    return [*build_context(log.events, before=before, bounds=Bounds()).messages]


def said(log: Log) -> list[str]:
    return [each.text for each in told(log) if isinstance(each, UserMessage)]


def test_a_message_waits_until_an_answer_is_asked_for(log: Log) -> None:
    turn = log.message("Build it")
    assert queued(log) == ["Build it"]
    log.begin(turn)
    assert queued(log) == ["Build it"]
    log.start(turn, 1)
    assert queued(log) == []
    send(log, "x" * 501)
    [waiting] = fold_of(log).queue()
    assert (len(waiting.text), waiting.is_whole, waiting.when, waiting.actor) == (TEXT_SHOWN, False, "next", "prin_1")
    log.respond(turn, 1, answer("", SHELL))
    log.request(turn, 2, SHELL)
    assert len(queued(log)) == 1, "a tool step takes nothing"
    log.finish_tool(turn, 2, finished("a"))
    log.start(turn, 3)
    assert queued(log) == []
    log.start(turn, 3, attempt=2)
    log.respond(turn, 3, answer(), attempt=2)
    log.end(turn)
    assert queued(log) == []


def test_one_that_was_withdrawn_is_never_told_and_is_no_reason_for_an_answer(log: Log, turn: TurnId) -> None:
    first, second = send(log, "one"), send(log, "two")
    do(log, fold_of(log).withdraw(first))
    assert fold_of(log).withdraw(first) is None
    assert queued(log) == ["two"]
    do(log, fold_of(log).withdraw(second))
    log.respond(turn, 1, answer("Done."))
    assert planned(log).finish == Finish(outcome="done")
    assert said(log) == ["Build it"]


def test_one_that_was_taken_cannot_be_withdrawn(log: Log, turn: TurnId) -> None:
    message = send(log, "one")
    log.respond(turn, 1, answer("So.", SHELL))
    log.tool(turn, 2, SHELL)
    log.start(turn, 3)
    for _ in range(2):
        with pytest.raises(ConflictError) as refused:
            fold_of(log).withdraw(message)
        assert refused.value.code == "message.taken"
        log.start(turn, 3, attempt=2) if len(log.events) < 12 else log.interrupt(turn)
    with pytest.raises(NotFoundError):
        fold_of(log).withdraw(new_message_id())


def test_of_a_withdrawal_and_a_taking_the_second_one_sees_the_first(log: Log, turn: TurnId) -> None:
    message = send(log, "one")
    log.respond(turn, 1, answer("So.", SHELL))
    log.tool(turn, 2, SHELL)
    decided, head = fold_of(log).withdraw(message), len(log.events)
    assert decided is not None
    log.start(turn, 3)
    with pytest.raises(ConflictError) as moved:
        log.append(decided, turn=turn, expect=head)
    assert moved.value.code == "append.moved"
    assert "one" in said(log)


def test_an_attempt_that_started_behind_a_withdrawal_is_not_told(log: Log, turn: TurnId) -> None:
    message = send(log, "one")
    log.respond(turn, 1, answer("So.", SHELL))
    log.tool(turn, 2, SHELL)
    do(log, fold_of(log).withdraw(message))
    log.start(turn, 3)
    assert [each.text for each in told(log, before=len(log.events)) if isinstance(each, UserMessage)] == ["Build it"]


def test_more_of_a_budget_is_waited_for_only_while_something_is_left_to_do(log: Log, turn: TurnId) -> None:
    message = send(log, "one")
    log.respond(turn, 1, answer("Done."))
    question = BudgetQuestion(scope="turn", limit="tokens", amount=1000)
    more = ApprovalRequested(approval="appr_1", question="More?", expires_at=LATER, budget=question)
    log.append(more, turn=turn)
    assert planned(log).wait is not None
    do(log, fold_of(log).withdraw(message))
    assert planned(log).finish == Finish(outcome="done")


LATER, SOON = "2031-01-01T00:00:00.000000Z", "2030-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("until", [LATER, SOON])
def test_what_ended_a_wait_is_not_withdrawn_unless_another_waits(log: Log, turn: TurnId, until: str) -> None:
    wait = call("w", "wait")
    log.respond(turn, 1, answer("", wait))
    log.append(WaitStarted(step=step_id(turn, 2), call="w", until=until), turn=turn)
    first = send(log, "one")
    assert fold_of(log).withdraw(first) is not None, "nothing has come of it yet"
    log.request(turn, 2, wait)
    if until == SOON:  # the time ended it
        return do(log, fold_of(log).withdraw(first))
    second = send(log, "two")
    do(log, fold_of(log).withdraw(first))
    log.finish_tool(turn, 2, finished("w"))
    with pytest.raises(ConflictError) as refused:
        fold_of(log).withdraw(second)
    assert refused.value.code == "message.taken"
    log.start(turn, 3)
    third = send(log, "three")
    do(log, fold_of(log).withdraw(third))
    log.respond(turn, 3, answer("", SHELL))
    fourth = send(log, "four")
    do(log, fold_of(log).withdraw(fourth))


@pytest.mark.parametrize("decision", ["expired", "approve"])
def test_what_came_instead_of_an_answer_is_not_withdrawn(log: Log, turn: TurnId, decision: str) -> None:
    question = call("q", "ask_human")
    log.respond(turn, 1, answer("", question))
    asked = ApprovalRequested(approval="appr_1", question="Which?", expires_at=LATER, step=step_id(turn, 2))
    log.append(asked, turn=turn)
    message = send(log, "Neither")
    log.append(ApprovalDecided.model_validate({"approval": "appr_1", "decision": decision}), turn=turn)
    if decision == "approve":
        log.tool(turn, 2, question)
        return do(log, fold_of(log).withdraw(message))
    for _ in range(2):
        with pytest.raises(ConflictError) as refused:
            fold_of(log).withdraw(message)
        assert refused.value.code == "message.taken"
        log.tool(turn, 2, question) if log.events[-1].type == "approval.decided" else None


def test_what_a_turn_was_opened_for_is_not_taken_from_it(log: Log) -> None:
    turn = log.message("Build it")
    [waiting] = fold_of(log).queue()
    with pytest.raises(ConflictError) as refused:
        fold_of(log).withdraw(waiting.id)
    assert refused.value.code == "message.opens_turn"
    send(log, "Or rather this")
    do(log, fold_of(log).withdraw(waiting.id))
    log.begin(turn)
    log.start(turn, 1)
    assert said(log) == ["Or rather this"]


def test_an_order_is_told_in_the_places_that_the_messages_had(log: Log, turn: TurnId) -> None:
    one, two, three = (send(log, text) for text in ("one", "two", "three"))
    log.respond(turn, 1, answer("I do.", SHELL))
    do(log, fold_of(log).order([three, one, two]))
    assert queued(log) == ["three", "one", "two"]
    assert fold_of(log).order([three, one, two]) is None
    do(log, fold_of(log).order([two, three, one]))
    log.tool(turn, 2, SHELL)
    four = send(log, "four")
    assert queued(log) == ["two", "three", "one", "four"]
    assert said(log) == ["Build it", "two", "three", "one", "four"]
    do(log, fold_of(log).order([four, two, three, one]))
    log.answered(turn, 3, answer("Done."))
    assert said(log) == ["Build it", "four", "two", "three", "one"]
    log.end(turn)
    [replayed] = turns_of(log.events)
    assert [message.text for _, message in replayed.messages] == ["Build it", "four", "two", "three", "one"]


def test_an_order_names_all_that_wait_and_no_other(log: Log, turn: TurnId) -> None:
    one, two = send(log, "one"), send(log, "two")
    for order in ([one], [one, two, new_message_id()], [], [two, new_message_id()]):
        with pytest.raises(ConflictError) as changed:
            fold_of(log).order(order)
        assert (changed.value.code, changed.value.facts["order"]) == ("queue.changed", (one, two))
    with pytest.raises(InvalidError):
        fold_of(log).order([one, one])
    assert fold_of(Log()).order([]) is None
    with pytest.raises(ConflictError, match="No message waits any more"):
        fold_of(Log()).order([one])


def test_a_message_that_hurries_ends_what_was_begun_and_leaves_the_rest_undone(log: Log, turn: TurnId) -> None:
    calls = [call("r1", "read"), call("r2", "look"), call("s", "shell"), call("r3", "read")]
    log.respond(turn, 1, answer("", *calls))
    log.request(turn, 2, calls[0])
    log.tool(turn, 3, calls[1])
    send(log, "Stop that", is_hurried=True)
    assert [each.call for each in planned(log).tools] == ["r1"]
    log.finish_tool(turn, 2, finished("r1", outcome="failed"))
    plan = planned(log)
    assert plan.model is not None
    assert plan.model.n == 6
    log.start(turn, 6)
    assert planned(log).model == plan.model, "it is not begun after all when the attempt dies"
    results = {each.call: each.output for each in told(log) if isinstance(each, ToolResultMessage)}
    assert [*results] == ["r1", "r2", "s", "r3"]
    assert "read at once" in results["s"]
    assert results["s"] == results["r3"]
    log.respond(turn, 6, answer("I stopped."))
    assert planned(log).finish == Finish(outcome="done")


def test_calls_of_an_answer_that_did_not_see_the_hurry_are_not_begun(log: Log, turn: TurnId) -> None:
    send(log, "Stop that", is_hurried=True)
    assert log.state().is_outrun(4)
    log.respond(turn, 1, answer("", SHELL))
    assert planned(log).model is not None
    log.start(turn, 3)
    assert not log.state().is_outrun(len(log.events)), "what has taken it is not stopped for it"
    log.respond(turn, 3, answer("", SHELL))
    assert [each.call for each in planned(log).tools] == ["a"], "it is over"


def test_what_waits_for_a_subagent_is_stopped_and_what_a_message_ends_is_ended(log: Log, turn: TurnId) -> None:
    calls = [call("sub", "read"), call("w", "look")]
    log.respond(turn, 1, answer("", *calls))
    log.request(turn, 2, calls[0])
    log.append(SubagentStarted(conversation="conv_child", step=step_id(turn, 2)), turn=turn)
    until = "2031-01-01T00:00:00.000000Z"
    log.append(WaitStarted(step=step_id(turn, 3), call="w", until=until), turn=turn)
    assert planned(log).wait is not None
    send(log, "Now", is_hurried=True)
    assert [each.call for each in planned(log).tools] == ["sub", "w"]


def test_nobody_is_asked_any_more_about_calls_that_are_left_undone(log: Log, turn: TurnId) -> None:
    log.respond(turn, 1, answer("", SHELL))
    log.append(
        ApprovalRequested(
            approval="appr_1",
            question="May I?",
            digest=digest_of("shell", {}),
            expires_at="2031-01-01T00:00:00.000000Z",
            step=step_id(turn, 2),
        ),
        turn=turn,
    )
    send(log, "Well?")
    assert undone_approvals(log.state()) == []
    send(log, "Now", is_hurried=True)
    [expired] = undone_approvals(log.state())
    assert (expired.approval, expired.decision) == ("appr_1", "expired")
    log.append(expired, turn=turn)
    assert undone_approvals(log.state()) == []
    assert planned(log).model is not None


def test_one_that_hurried_cannot_be_withdrawn_since_something_was_stopped_for_it(log: Log, turn: TurnId) -> None:
    message = send(log, "Now", is_hurried=True)
    assert [each.when for each in fold_of(log).queue()] == ["now"]
    with pytest.raises(ConflictError) as refused:
        fold_of(log).withdraw(message)
    assert refused.value.code == "message.hurried"


def test_calls_that_no_message_left_undone_are_told_as_those_of_a_turn_that_ended(log: Log, turn: TurnId) -> None:
    log.respond(turn, 1, answer("", SHELL))
    log.interrupt(turn)
    log.end(turn, "interrupted")
    after = log.message("Again")
    log.begin(after)
    log.append(MessageHurried(message="msg_unknown"), turn=after)
    [result] = [each for each in told(log) if isinstance(each, ToolResultMessage)]
    assert "turn ended" in result.output
    assert any(isinstance(each, Note) for each in told(log))


def test_a_person_is_shown_what_was_withdrawn_as_such(log: Log, turn: TurnId) -> None:
    send(log, "keep")
    gone = send(log, "take back")
    do(log, fold_of(log).withdraw(gone))
    transcript = Transcript()
    for event in log.events:
        transcript.fold(event)
    items = transcript.to_json()["items"]
    assert [(each["text"], each["withdrawn"]) for each in items if each["kind"] == "message"] == [
        ("Build it", False),
        ("keep", False),
        ("take back", True),
    ]
    assert items[-1]["type"] == "message.withdrawn"


def test_a_fork_has_nothing_that_waits(log: Log, turn: TurnId) -> None:
    send(log, "one")
    fork = Log(shared=tuple(log.events))
    assert queued(fork) == []
    with pytest.raises(ConflictError):
        fold_of(fork).withdraw(next(event.data["message"] for event in log.events if event.type == "message.sent"))
    assert derive("turn", turn, 1) != turn
