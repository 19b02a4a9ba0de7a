"""The checker of the crash campaign finds what it is there for: a right account has nothing wrong, and each way of
being wrong is found by its rule."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from crash.loop.checker import Account, wrongs
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

    def say(self, type: str, of: str | None = None, nth: int | None = None, **data: Any) -> None:
        """`of`: the step, and `nth`: its attempt."""
        seq = len(self.log) + 1
        event = Event(
            f"evt_{seq}",
            seq,
            None,
            "conv_1",
            "turn_1",
            of,
            nth,
            type,
            1,
            f"2026-01-01T00:00:{seq:02}Z",
            "x",
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
    assert wrongs(account, account.transcript, TAG) == []


def test_an_effect_that_is_marked_lost_may_have_happened_or_not() -> None:
    log, seen = _last_lost(right().log), _last_lost(right().seen)
    read = _read(log)
    for lines in (LINES, [line for line in LINES if not line.endswith(f"{TAG}.2")]):
        account = replace(right(), log=log, seen=seen, shown=read, transcript=read, lines=lines)
        assert wrongs(account, right().transcript, TAG) == []


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
    "a command ran twice": ("effects", lambda a: replace(a, lines=[*a.lines, LINES[0]])),
    "a command is said to have run": ("effects", lambda a: replace(a, lines=a.lines[1:])),
    "a write undid what came after": ("effects", lambda a: replace(a, lines=a.lines[:-1])),
    "a command failed": ("effects", lambda a: _changed(a, "tool.finished", outcome="failed")),
    "something strange ran": ("effects", lambda a: replace(a, lines=[*a.lines, "ran:t0009.1"])),
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
    assert [wrong for wrong in wrongs(make(account), account.transcript, TAG) if wrong.startswith(f"{rule}:")]


def test_a_transcript_that_differs_from_an_undisturbed_run_is_found() -> None:
    account = right()
    other = [{**item, "text": "Else."} if item["kind"] == "answer" else item for item in account.transcript]
    assert wrongs(account, other, TAG)
