"""What a call waits for: what is written of it, what the plan makes of it, and how it ended."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from outlive.base import TurnId, to_text
from outlive.conversation.approvals import digest_of
from outlive.conversation.events import ApprovalDecided, ApprovalRequested, ConversationCreated, ToolCall, WaitStarted
from outlive.loop.decide import Runs, decide
from outlive.loop.fold import step_id
from outlive.loop.holds import AskAbout, AskPerson, WaitFor, asked, expired, settled
from outlive.loop.plan import Plan, Wait
from outlive.loop.state import Call
from outlive.loop.tools.port import ToolResult
from outlive.loop.tools.waiting import commented, refused, wish_of
from unit.loop.logs import AT, Log, answer, call

RUNS: Mapping[str, Runs] = {"read": "parallel", "look": "parallel", "shell": "in_turn"}
NOW = datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)  # when everything in the log was written
HOUR = timedelta(hours=1)


@pytest.fixture
def log() -> Log:
    return Log(ConversationCreated(agent="coder"))


@pytest.fixture
def turn(log: Log) -> TurnId:
    turn = log.message()
    log.begin(turn)
    return turn


def planned(log: Log, at: datetime = NOW) -> Plan:
    return decide(log.state(), RUNS, now=to_text(at))


def runs(log: Log, at: datetime = NOW) -> list[str]:
    return [step.call for step in planned(log, at).tools]


def find(log: Log, id: str) -> Call:
    state = log.state()
    assert state.turn is not None
    assert state.turn.answer is not None
    return next(each for each in state.turn.answer.calls if each.id == id)


def about(call: ToolCall, expires_s: float = 3600.0) -> AskAbout:
    return AskAbout(call.name, call.arguments, digest_of(call.name, call.arguments), expires_s)


def ask(log: Log, turn: TurnId, call: ToolCall, wish: AskAbout | AskPerson | WaitFor | None = None) -> str:
    data = asked(wish or about(call), find(log, call.id), NOW)
    log.append(data, turn=turn)
    return data.approval if isinstance(data, ApprovalRequested) else ""


def say(log: Log, turn: TurnId, approval: str, decision: str, comment: str | None = None) -> None:
    said = ApprovalDecided.model_validate({"approval": approval, "decision": decision, "comment": comment})
    log.append(said, turn=turn)


def test_what_needs_a_person_waits_until_it_is_decided_or_nobody_can_any_more(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="ls")
    log.answered(turn, 1, answer("", shell))
    approval = ask(log, turn, shell)
    expiry = to_text(NOW + HOUR)
    assert planned(log).wait == Wait(until=expiry)
    assert planned(log, NOW + HOUR - timedelta(microseconds=1)).wait == Wait(until=expiry)
    assert runs(log, NOW + HOUR) == ["1"], "its step says that it has expired"
    say(log, turn, approval, "approve")
    assert runs(log) == ["1"]


def test_a_message_does_not_decide_about_a_tool(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="ls")
    log.answered(turn, 1, answer("", shell))
    ask(log, turn, shell)
    log.message("well?")
    assert planned(log).wait is not None


@pytest.mark.parametrize("wish", [AskPerson("Which port?"), WaitFor(seconds=3600)], ids=["question", "wait"])
def test_a_message_ends_a_question_and_a_wait(log: Log, turn: TurnId, wish: AskPerson | WaitFor) -> None:
    tool = call("1", "ask_human")
    log.answered(turn, 1, answer("", tool))
    ask(log, turn, tool, wish)
    assert planned(log).wait is not None
    log.message("8080")
    assert runs(log) == ["1"]


def test_a_message_that_the_answer_had_seen_ends_nothing(log: Log, turn: TurnId) -> None:
    log.message("before it was asked")
    tool = call("1", "wait")
    log.answered(turn, 1, answer("", tool))
    ask(log, turn, tool, WaitFor(seconds=60))
    assert planned(log).wait is not None
    assert runs(log, NOW + HOUR) == ["1"]


def test_an_approval_that_expired_ends_the_turn_unless_somebody_is_there(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="ls")
    log.answered(turn, 1, answer("", shell))
    approval = ask(log, turn, shell)
    say(log, turn, approval, "expired")
    finish = planned(log).finish
    assert finish is not None
    assert (finish.outcome, finish.reason) == ("waiting_expired", "Nobody answered in time.")
    log.message("I am back")
    assert runs(log) == ["1"], "the model is told that it was not run, and the message"


def test_independent_calls_run_beside_one_that_waits_and_others_after_it(log: Log, turn: TurnId) -> None:
    calls = [call("1", "read"), call("2", "look"), call("3", "shell"), call("4", "shell")]
    log.answered(turn, 1, answer("", *calls))
    first, third = ask(log, turn, calls[0]), ask(log, turn, calls[2])
    assert runs(log) == ["2"]
    log.tool(turn, 3, calls[1])
    assert planned(log).wait is not None
    say(log, turn, third, "approve")
    assert planned(log).wait is not None, "it comes after one that waits"
    say(log, turn, first, "deny")
    assert runs(log) == ["1"]
    log.tool(turn, 2, calls[0])
    assert runs(log) == ["3"]
    log.tool(turn, 4, calls[2])
    assert runs(log) == ["4"]


def test_a_turn_waits_until_the_first_of_those_it_waits_for_is_over(log: Log, turn: TurnId) -> None:
    calls = [call("1", "read"), call("2", "look")]
    log.answered(turn, 1, answer("", *calls))
    ask(log, turn, calls[0], about(calls[0], 7200))
    ask(log, turn, calls[1], about(calls[1], 3600))
    assert planned(log).wait == Wait(until=to_text(NOW + HOUR))


def test_only_the_first_decision_counts(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="ls")
    log.answered(turn, 1, answer("", shell))
    approval = ask(log, turn, shell)
    say(log, turn, approval, "deny", "no")
    say(log, turn, approval, "approve")
    hold = find(log, "1").hold
    assert hold is not None
    assert settled(hold, log.events, NOW, about(shell)).decision == "deny"


def test_a_turn_is_parked_until_something_comes_that_it_has_to_look_at(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="ls")
    log.answered(turn, 1, answer("", shell))
    approval = ask(log, turn, shell)

    def park() -> None:
        log.park(turn)
        assert planned(log).wait == Wait(until=to_text(NOW + HOUR), is_parked=True)
        assert log.summary.state == "waiting"

    park()
    log.hibernate(turn)
    assert planned(log).wait == Wait(until=to_text(NOW + HOUR), is_parked=True), "what its machine does is no news"
    log.message("well?")
    assert planned(log).wait == Wait(until=to_text(NOW + HOUR))
    assert log.summary.state == "running", "somebody has to look"
    park()
    say(log, turn, approval, "approve")
    assert log.summary.state == "running"
    assert runs(log) == ["1"]


def test_another_turns_decision_and_rest_change_nothing(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="ls")
    log.answered(turn, 1, answer("", shell))
    approval = ask(log, turn, shell)
    log.park(turn)
    log.interrupt(turn)
    log.end(turn, "interrupted")
    later = log.message("again")
    log.begin(later)
    log.answered(later, 1, answer("", shell))
    ask(log, later, shell)
    log.park(later)
    say(log, turn, approval, "approve")
    log.park(turn)
    assert planned(log).wait == Wait(until=to_text(NOW + HOUR), is_parked=True)
    assert log.summary.state == "waiting"


# ── what is asked, and how it ended ──


def test_an_approval_is_bound_to_its_step_effect_tool_and_arguments(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="rm -r build")
    log.answered(turn, 1, answer("", shell))
    data = asked(about(shell), find(log, "1"), NOW)
    assert isinstance(data, ApprovalRequested)
    step = step_id(turn, 2)
    assert (data.step, data.effect) == (step, step.replace("step_", "eff_"))
    assert (data.tool, data.arguments) == ("shell", {"command": "rm -r build"})
    assert data.digest == digest_of("shell", {"command": "rm -r build"})
    assert data.expires_at == to_text(NOW + HOUR)
    assert "rm -r build" in data.question
    long = asked(about(call("1", "shell", command="x" * 10_000)), find(log, "1"), NOW)
    assert isinstance(long, ApprovalRequested)
    assert len(long.question) < 3_000
    assert long.arguments == {"command": "x" * 10_000}


def test_a_digest_is_of_the_call_and_not_of_how_it_was_written() -> None:
    assert digest_of("a", {"x": 1, "y": "ü"}) == digest_of("a", {"y": "ü", "x": 1})
    digests = {
        digest_of(*each) for each in (("a", {"x": 1}), ("b", {"x": 1}), ("a", {"x": "1"}), ("a", {"x": 1, "y": None}))
    }
    assert len(digests) == 4


def test_other_arguments_than_those_that_were_approved_are_refused(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="ls")
    log.answered(turn, 1, answer("", shell))
    say(log, turn, ask(log, turn, shell), "approve")
    hold = find(log, "1").hold
    assert refused(settled(hold, log.events, NOW, about(shell))) is None
    changed = refused(settled(hold, log.events, NOW, about(call("1", "shell", command="rm -rf /"))))
    assert changed is not None
    assert (changed.outcome, "other arguments" in changed.output) == ("rejected", True)


def test_what_was_not_approved_is_rejected_with_what_was_said(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="ls")
    log.answered(turn, 1, answer("", shell))
    say(log, turn, ask(log, turn, shell), "deny", "not on a Friday")
    ended = settled(find(log, "1").hold, log.events, NOW, about(shell))
    assert refused(ended) == ToolResult("rejected", "A person denied it: not on a Friday")
    assert ended.by == "prin_1"
    never_asked = refused(settled(None, log.events, NOW, about(shell)))
    assert never_asked is not None
    assert never_asked.outcome == "rejected"


def test_what_was_said_with_a_yes_is_told(log: Log, turn: TurnId) -> None:
    shell = call("1", "shell", command="ls")
    log.answered(turn, 1, answer("", shell))
    say(log, turn, ask(log, turn, shell), "approve", "mind the gap")
    ended = settled(find(log, "1").hold, log.events, NOW, about(shell))
    assert "mind the gap" in commented(ToolResult("finished", "done"), ended).output


def test_how_long_it_waited_and_why_it_ended_is_known(log: Log, turn: TurnId) -> None:
    tool = call("1", "wait")
    log.answered(turn, 1, answer("", tool))
    ask(log, turn, tool, WaitFor(seconds=3600))
    hold = find(log, "1").hold
    early = settled(hold, log.events, NOW + timedelta(seconds=90), None)
    assert (early.waited_s, early.is_early) == (90.0, True)
    over = settled(hold, log.events, NOW + HOUR, None)
    assert (over.waited_s, over.is_early) == (3600.0, False)


def test_a_wait_until_a_moment_that_has_passed_is_over(log: Log, turn: TurnId) -> None:
    tool = call("1", "wait")
    log.answered(turn, 1, answer("", tool))
    data = asked(WaitFor(until=NOW - HOUR), find(log, "1"), NOW)
    assert data == WaitStarted(step=step_id(turn, 2), call="1", until=AT)
    log.append(data, turn=turn)
    assert runs(log) == ["1"]


def test_nobody_is_said_to_have_decided_only_when_nobody_can_any_more(log: Log, turn: TurnId) -> None:
    ask_human = call("1", "ask_human")
    log.answered(turn, 1, answer("", ask_human))
    ask(log, turn, ask_human, AskPerson("Which port?", expires_s=3600))
    hold = find(log, "1").hold
    assert hold is not None
    assert expired(hold, to_text(NOW), is_spoken_to=False) is None
    by_message = expired(hold, to_text(NOW), is_spoken_to=True)
    assert by_message is not None
    assert (by_message.decision, by_message.comment) == ("expired", "A message came instead of an answer.")
    late = expired(hold, to_text(NOW + HOUR), is_spoken_to=False)
    assert late is not None
    assert (late.decision, late.comment) == ("expired", None)


# ── which calls wait ──


@pytest.mark.parametrize(
    ("given", "wish"),
    [
        (call("1", "shell", command="ls"), AskAbout),
        (call("1", "read_file", path="x"), None),
        (call("1", "ask_human", question="Which?"), AskPerson),
        (call("1", "ask_human"), None),
        (ToolCall(id="1", name="wait", arguments={"seconds": 5}), WaitFor),
        (ToolCall(id="1", name="wait", arguments={"until": "2031-01-01T00:00:00"}), WaitFor),
        (ToolCall(id="1", name="wait", arguments={"seconds": 5, "until": "2031-01-01T00:00:00"}), None),
        (ToolCall(id="1", name="wait", arguments={"seconds": 31 * 24 * 3600}), None),
        (ToolCall(id="1", name="wait", arguments={}), None),
        (call("1", "write_file", path="x"), None),
        (ToolCall(id="1", name="shell", arguments={}, error="no JSON"), None),
    ],
)
def test_a_call_waits_for_what_its_tool_and_its_agent_say(given: ToolCall, wish: type | None) -> None:
    allowed = ("shell", "read_file", "ask_human", "wait")
    found = wish_of(given, allowed, {"shell", "write_file"}, None)
    assert found is None if wish is None else isinstance(found, wish)
