"""The checker of the crash campaign finds what it is there for: a right account has nothing wrong, and each way of
being wrong is found by its rule."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from crash.loop.checker import Account, batch_wrongs, usual_of, wrongs
from crash.loop.kinds import APPROVED, DENIED, KINDS, Kind
from outlive.client import Event, View
from outlive.testing.pretend_provider import Call

TAG = "t0000"
TOOLS = (("shell", f"{TAG}.1"), ("write_file", ""), ("shell", f"{TAG}.2"))
LINES = [f"ran:{TAG}.1", f"ran:{TAG}.2", f"{TAG}.txt:{TAG} written", f"{TAG}.txt:{TAG}.2"]


class Writing:
    """A log and a follower of it."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.seen: list[Event] = []
        self.turn: str | None = "turn_1"

    def say(self, type: str, of: str | None = None, nth: int | None = None, *, by: str = "x", **data: Any) -> None:
        """`of`: the step, and `nth`: its attempt."""
        seq = len(self.log) + 1
        event = Event(
            f"evt_{seq}",
            seq,
            None,
            "conv_1",
            self.turn,
            of,
            nth,
            type,
            1,
            f"2026-01-01T00:00:{seq:02}Z",
            by,
            data,
        )
        self.log.append(event)
        self.seen.append(event)

    def show(self, type: str, step: str, attempt: int, **data: Any) -> None:
        """Live, and never in the log."""
        at = self.log[-1].at
        self.seen.append(Event(None, None, None, "conv_1", "turn_1", step, attempt, type, 1, at, "x", data))


def _write() -> Writing:
    """One turn: an answer that took two attempts, three tools, an answer."""
    to = Writing()
    to.say("conversation.created")
    to.say("message.sent", message="msg_1", text=f"Do {TAG}.")
    to.say("turn.started", agent="coder", version=1, model="m")
    to.say("step.started", "step_1", 1, kind="model", name="m")
    to.show("model.delta", "step_1", 1, text="I be", offset=0)
    to.show("step.rewound", "step_1", 2)
    to.say("step.started", "step_1", 2, kind="model", name="m")
    to.say("turn.recovered", what="step_retried", step="step_1", attempt=2, reason="gone")
    to.show("model.delta", "step_1", 2, text="I begin", offset=0)
    to.say("model.responded", "step_1", 2, text="I begin", tool_calls=[], model="m", stop_reason="tool_use")
    for n, (name, _) in enumerate(TOOLS, 2):
        to.say("step.started", f"step_{n}", 1, kind="tool", name=name)
        to.say("tool.requested", f"step_{n}", 1, call=f"c{n}", name=name, arguments={}, effect=f"eff_{n}")
        to.say(
            "tool.finished", f"step_{n}", 1, call=f"c{n}", effect=f"eff_{n}", outcome="finished", output="", exit_code=0
        )
    to.say("step.started", "step_5", 1, kind="model", name="m")
    to.say("model.responded", "step_5", 1, text="Done.", tool_calls=[], model="m", stop_reason="end_turn")
    to.say("turn.finished", outcome="done", reason=None)
    return to


def _call(step: str, started_at: float, nth: int = 1) -> Call:
    return Call(nth, "openai", step, "m", 0, nth, "answered", started_at)


def _read(events: Sequence[Event]) -> list[dict[str, Any]]:
    view = View()
    for event in events:
        view.fold(event)
    return view.items()


def right() -> Account:
    to = _write()
    read = _read(to.log)
    calls = [_call("step_1", 0.0), _call("step_1", 1.0, 2), _call("step_5", 2.0)]  # long before they were sealed
    return Account({TAG: "turn_1"}, to.log, to.seen, read, read, calls, LINES)


def test_a_right_account_has_nothing_wrong() -> None:
    account = right()
    assert wrongs(account, usual_of(account)) == []


def test_an_effect_that_is_marked_lost_may_have_happened_or_not() -> None:
    log, seen = _last_lost(right().log), _last_lost(right().seen)
    read = _read(log)
    for lines in (LINES, [line for line in LINES if not line.endswith(f"{TAG}.2")]):
        account = replace(right(), log=log, seen=seen, shown=read, transcript=read, lines=lines)
        assert wrongs(account, usual_of(right())) == []


def _last_lost(events: Sequence[Event]) -> list[Event]:
    """The same, but that nobody knows what came of the last command."""
    return [
        replace(event, data={**event.data, "outcome": "lost"})
        if (event.step, event.type) == ("step_4", "tool.finished")
        else event
        for event in events
    ]


def _without(events: Sequence[Event], type: str) -> list[Event]:
    return [event for event in events if event.type != type]


def _twice(events: Sequence[Event], type: str) -> list[Event]:
    return [copy for event in events for copy in ([event, event] if event.type == type else [event])]


def _changed(account: Account, type: str, **data: Any) -> Account:
    log = [
        replace(event, data={**event.data, **data}) if event.type == type and event.seq is not None else event
        for event in account.log
    ]
    return replace(account, log=log, seen=log)


MISTAKES: dict[str, tuple[str, Callable[[Account], Account]]] = {
    "an event is missing": ("log", lambda a: replace(a, log=_without(a.log, "turn.started"))),
    "a turn did not end": ("log", lambda a: replace(a, log=_without(a.log, "turn.finished"))),
    "a turn failed": ("log", lambda a: _changed(a, "turn.finished", outcome="failed")),
    "a turn ended twice": ("log", lambda a: replace(a, log=_twice(a.log, "turn.finished"))),
    "a message was lost": ("log", lambda a: replace(a, turns={**a.turns, "t0001": "turn_2"})),
    "a step was sealed twice": ("steps", lambda a: replace(a, log=_twice(a.log, "model.responded"))),
    "a step was not sealed": ("steps", lambda a: replace(a, log=_without(a.log, "tool.finished"))),
    "a retry was not explained": ("steps", lambda a: replace(a, log=_without(a.log, "turn.recovered"))),
    "an effect got another id": ("steps", lambda a: _changed(a, "tool.finished", effect="eff_other")),
    "a sealed step was bought again": ("buying", lambda a: replace(a, calls=[*a.calls[1:], _call("step_5", 2e9)])),
    "an attempt asked twice": ("buying", lambda a: replace(a, calls=[*a.calls, _call("step_5", 3.0)])),
    "a command ran twice": ("effects", lambda a: replace(a, lines=[*LINES, LINES[0]])),
    "a command is said to have run": ("effects", lambda a: replace(a, lines=LINES[1:])),
    "a write undid what came after": ("effects", lambda a: replace(a, lines=LINES[:-1])),
    "a command failed": ("effects", lambda a: _changed(a, "tool.finished", outcome="failed")),
    "something strange ran": ("effects", lambda a: replace(a, lines=[*LINES, "ran:t0009.1"])),
    "a follower missed an event": ("stream", lambda a: replace(a, seen=_without(a.seen, "turn.started"))),
    "a follower saw an event twice": ("stream", lambda a: replace(a, seen=_twice(a.seen, "turn.started"))),
    "live output was shown twice": ("stream", lambda a: replace(a, seen=_twice(a.seen, "model.delta"))),
    "nothing was taken back": ("stream", lambda a: replace(a, seen=_without(a.seen, "step.rewound"))),
    "live output came after its seal": ("stream", lambda a: replace(a, seen=[*a.seen, a.seen[4]])),
    "live output was never said": (
        "stream",
        lambda a: replace(_changed(a, "model.responded", text="No."), seen=a.seen),
    ),
    "the screen differs from the transcript": ("reading", lambda a: replace(a, shown=a.shown[1:])),
    "an answer is missing": ("reading", lambda a: replace(a, transcript=a.transcript[:-1], shown=a.shown[:-1])),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_wrong_is_found(mistake: str) -> None:
    rule, make = MISTAKES[mistake]
    account = right()
    assert [wrong for wrong in wrongs(make(account), usual_of(account)) if wrong.startswith(f"{rule}:")]


def test_a_transcript_that_differs_from_an_undisturbed_run_is_found() -> None:
    account = right()
    [(name, usual)] = usual_of(account).items()
    other = [{**item, "text": "Else."} if item["kind"] == "answer" else item for item in usual.items]
    assert wrongs(account, {name: usual._replace(items=other)})


# ── the other kinds ──

CHILD = "conv_2"
NEWS: dict[str, dict[str, Any]] = {
    "approval.requested": {"approval": "appr_1", "question": "May it?"},
    "approval.decided": {"approval": "appr_1", "decision": "approve", "comment": None},
    "budget.raised": {"steps": 1},
    "wait.started": {"step": "step_2", "call": "c", "until": "2026"},
    "subagent.started": {"conversation": CHILD, "step": "step_2", "detached": False, "machine": "same"},
    "subagent.finished": {"conversation": CHILD, "outcome": "done"},
}
DETACHED = next(kind for kind in KINDS if kind.is_detached)
ASKING = [kind for kind in KINDS if kind.does == "turn"]


def _account(kind: Kind, *, since: int = 0) -> Account:
    """A right one of this kind, behind `since` events of a conversation that it was forked from."""
    to = Writing()
    to.turn = "turn_0"
    for n in range(since):
        to.say("message.sent", message=f"msg_old_{n}", text="Before.")
    to.turn = "turn_1"
    to.say("message.sent", message="msg_1", text=f"Do {TAG}.")
    to.say("turn.started", agent="handy", version=1, model="m")
    for n, name in enumerate(kind.tools):
        outcome = "rejected" if n in kind.denied else "finished"
        named = {"call": f"c{n}", "effect": f"eff_{n}"}
        to.say("step.started", f"step_{n}", 1, kind="tool", name=name)
        to.say("tool.requested", f"step_{n}", 1, name=name, arguments={}, **named)
        to.say("tool.finished", f"step_{n}", 1, outcome=outcome, output="", exit_code=0, **named)
    for type, count in kind.says.items():
        if type != "subagent.finished" or not kind.is_detached:
            for _ in range(count):
                decision = {"decision": kind.answer.decision} if kind.answer and type == "approval.decided" else {}
                to.say(type, **{**NEWS[type], **decision})
    to.say("turn.finished", outcome="done", reason=None)
    if kind.is_detached:
        to.turn = "turn_2"
        _report(to)
    lines = [line for line, place in kind.lines(TAG) if place not in kind.denied]
    read = _read(to.log)
    return Account({TAG: "turn_1"}, to.log, to.seen, read, read, [], lines, {TAG: kind}, since)


def _report(to: Writing) -> None:
    to.say("subagent.finished", by=f"subagent:{CHILD}", **NEWS["subagent.finished"])
    to.say("message.sent", by=f"subagent:{CHILD}", message="msg_2", text="[report of subagent conv_2]")
    to.say("turn.started", agent="handy", version=1, model="m")
    to.say("step.started", "step_9", 1, kind="model", name="m")
    to.say("model.responded", "step_9", 1, text="You said: [report of subagent conv_2]", tool_calls=[], stop_reason="x")
    to.say("turn.finished", outcome="done", reason=None)


@pytest.mark.parametrize("since", [0, 3])
@pytest.mark.parametrize("kind", ASKING, ids=lambda kind: kind.name)
def test_a_right_account_of_each_kind_has_nothing_wrong(kind: Kind, since: int) -> None:
    account = _account(kind, since=since)
    assert wrongs(account, usual_of(account)) == []


@pytest.mark.parametrize("doing", ["missing", "doubled"])
@pytest.mark.parametrize(("kind", "type"), [(kind, type) for kind in ASKING for type in kind.says])
def test_whatever_a_kind_says_too_often_or_never_is_found(kind: Kind, type: str, doing: str) -> None:
    account = _account(kind)
    log = _without(account.log, type) if doing == "missing" else _twice(account.log, type)
    found = wrongs(replace(account, log=log), usual_of(account))
    assert [wrong for wrong in found if wrong.startswith("asking:")]


def _unreported(account: Account) -> Account:
    return replace(account, log=[event for event in account.log if event.data.get("message") != "msg_2"])


def _of_another_turn(account: Account) -> Account:
    """The same, and a turn that nobody asked for."""
    to = Writing()
    to.log, to.seen, to.turn = [*account.log], [*account.log], "turn_9"
    to.say("message.sent", message="msg_9", text="What?")
    to.say("turn.finished", outcome="done", reason=None)
    read = _read(to.log)
    return replace(account, log=to.log, seen=to.seen, shown=read, transcript=read)


NEW_MISTAKES: dict[str, tuple[str, Kind, Callable[[Account], Account]]] = {
    "what was denied happened": (
        "effects",
        DENIED,
        lambda a: replace(a, lines=[*(a.lines or ()), f"{TAG}.txt:{TAG} two"]),
    ),
    "what was denied is said to be done": (
        "effects",
        DENIED,
        lambda a: _changed(a, "tool.finished", outcome="finished"),
    ),
    "what was approved did not happen": ("effects", APPROVED, lambda a: replace(a, lines=(a.lines or ())[:1])),
    "what was approved happened twice": (
        "effects",
        APPROVED,
        lambda a: replace(a, lines=[*(a.lines or ()), f"{TAG}.txt:{TAG} two"]),
    ),
    "nobody was heard": ("asking", APPROVED, lambda a: _changed(a, "approval.decided", decision="expired")),
    "a no was heard as a yes": ("asking", DENIED, lambda a: _changed(a, "approval.decided", decision="approve")),
    "a report never came": ("asking", DETACHED, _unreported),
    "a report came twice": ("asking", DETACHED, lambda a: replace(a, log=[*a.log, a.log[-5]])),
    "the turn of a report failed": ("log", DETACHED, lambda a: _changed(a, "turn.finished", outcome="failed")),
    "a turn began of itself": ("reading", APPROVED, _of_another_turn),
    "something came when all was over": ("log", APPROVED, lambda a: replace(a, later=[a.log[1]])),
    "a machine is left": ("left", APPROVED, lambda a: replace(a, left=["mach_1"])),
}


@pytest.mark.parametrize("mistake", NEW_MISTAKES)
def test_what_is_wrong_with_the_other_kinds_is_found(mistake: str) -> None:
    rule, kind, make = NEW_MISTAKES[mistake]
    account = _account(kind)
    assert [wrong for wrong in wrongs(make(account), usual_of(account)) if wrong.startswith(f"{rule}:")]


def test_what_a_machine_is_said_to_have_lost_with_a_rollback_may_be_missing() -> None:
    account = _account(APPROVED)
    to = Writing()
    to.log, to.seen = [*account.log], [*account.log]
    to.say("machine.rolled_back", machine="mach_1", checkpoint="ckpt_1", effects=["eff_1"])
    read = _read(to.log)
    told = replace(account, log=to.log, seen=to.seen, shown=read, transcript=read, lines=(account.lines or ())[:1])
    assert wrongs(told, usual_of(account)) == []


def test_items_of_a_batch_that_are_missing_doubled_strange_or_failed_are_found() -> None:
    names, results = {"k1": "one", "k2": "two"}, [{"item": "one"}, {"item": "two"}]
    assert batch_wrongs(TAG, names, results, [], ["k1", "k2"]) == []
    assert batch_wrongs(TAG, names, results[:1], [], ["k1", "k2"])
    assert batch_wrongs(TAG, names, [*results, results[0]], [], ["k1", "k2"])
    assert batch_wrongs(TAG, names, [*results, {"item": "three"}], [], ["k1", "k2"])
    assert batch_wrongs(TAG, names, results, [{"item": "one", "outcome": "failed"}], ["k1", "k2"])
    for made in (["k1"], ["k1", "k2", "k2"], ["k1", "k2", "k3"]):
        assert batch_wrongs(TAG, names, results, [], made)
