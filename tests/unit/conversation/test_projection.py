"""The transcript: retries folded, and nothing shown as said that was not."""

import pytest

from outlive.base import BrokenError
from outlive.conversation.events import (
    ApprovalRequested,
    CompactionFinished,
    CompactionRequested,
    ConversationArchived,
    ConversationCreated,
    Delta,
    EventData,
    MachineLost,
    MessagePinned,
    MessageSent,
    MessageUnpinned,
    Parent,
    StepStarted,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
)
from outlive.conversation.projection import GAP, Transcript
from unit.conversation.placing import ANSWER, DONE, MODEL, ONE, REQUEST, TOOL, TURN, TWO, Log, delta, only, rewound


def test_a_message_is_an_item_of_its_own() -> None:
    log = Log()
    log.add(ConversationCreated(title="not said by anybody"))
    log.add(MessageSent(message="msg_1", text="Hi"))
    assert log.items() == [
        {
            "kind": "message",
            "seq": 2,
            "at": "at-2",
            "actor": "prin_1",
            "message": "msg_1",
            "text": "Hi",
            "attachments": [],
            "withdrawn": False,
            "pinned": False,
        }
    ]
    log.add(MessagePinned(message="msg_1"))
    assert [item["pinned"] for item in log.items()] == [True]
    log.add(MessageUnpinned(message="msg_1"))
    assert [item["pinned"] for item in log.items()] == [False]


def test_a_compaction_is_a_step_whose_summary_is_shown_while_it_is_made() -> None:
    log = Log()
    log.add(CompactionRequested(reason="asked"))
    log.add(StepStarted(kind="compaction", name="demo:"), ONE, 1)
    note, step = log.items()
    assert (note["kind"], note["type"]) == ("note", "compaction.requested")
    assert (step["kind"], step["state"], step["summary"], step["outcome"]) == ("compaction", "open", "", None)
    log.add(CompactionFinished(outcome="compacted", summary="So far.", through=1, parts=1, model="demo:"), ONE, 1)
    sealed = log.items()[-1]
    assert (sealed["state"], sealed["summary"], sealed["parts"]) == ("sealed", "So far.", 1)


def test_an_answer_is_what_its_seal_says() -> None:
    log = Log()
    log.add(MODEL, ONE, 1)
    log.add(ANSWER, ONE, 1)
    assert log.items() == [
        {
            "kind": "answer",
            "step": ONE,
            "attempt": 1,
            "attempts": 1,
            "state": "sealed",
            "seq": 2,
            "at": "at-2",
            "text": "Hello.",
            "tool_calls": [{"id": "c", "name": "shell", "arguments": {}, "error": None}],
            "model": "demo:",
            "usage": {
                "input_tokens": 0,
                "output_tokens": 0,
                "cache_read_tokens": 0,
                "cache_write_tokens": 0,
                "cost_usd": None,
            },
            "stop_reason": "end_turn",
        }
    ]


def test_a_tool_step_says_what_was_asked_and_what_came_of_it() -> None:
    log = Log()
    log.add(TOOL, ONE, 1)
    assert log.items()[0]["name"] == "shell"
    log.add(REQUEST, ONE, 1)
    asked = {
        "kind": "tool",
        "step": ONE,
        "attempt": 1,
        "attempts": 1,
        "state": "open",
        "seq": None,
        "at": "at-1",
        "call": "c",
        "name": "shell",
        "arguments": {"command": "ls"},
        "effect": "eff_1",
        "outcome": None,
        "output": "",
        "exit_code": None,
        "blob": None,
    }
    assert log.items() == [asked]
    log.add(DONE, ONE, 1)
    finished = {"state": "sealed", "seq": 3, "at": "at-3", "outcome": "finished", "output": "a b", "exit_code": 0}
    assert log.items() == [asked | finished]


def test_a_retried_step_appears_once_where_it_first_started() -> None:
    log = Log()
    log.add(MODEL, ONE, 1)
    log.add(MessageSent(message="msg_1", text="and another thing"))
    log.add(MODEL, ONE, 2)
    log.add(MODEL, ONE, 4)
    log.add(ANSWER, ONE, 4)
    step, message = log.items()
    assert message["kind"] == "message"
    assert (step["attempt"], step["attempts"], step["text"]) == (4, 3, "Hello.")


def test_a_new_attempt_of_a_tool_forgets_the_request_of_the_old_one() -> None:
    log = Log()
    log.add(TOOL, ONE, 1)
    log.add(REQUEST, ONE, 1)
    log.add(TOOL, ONE, 2)
    (step,) = log.items()
    assert (step["effect"], step["arguments"], step["name"], step["state"]) == (None, None, "shell", "open")


def test_live_output_shows_while_a_step_is_open_and_its_seal_replaces_it() -> None:
    log, view = Log(), Transcript()
    view.fold(log.add(MODEL, ONE, 1))
    view.fold(delta("Hel", 0))
    view.fold(delta("p", 3))
    assert only(view)["text"] == "Help"
    view.fold(log.add(ANSWER, ONE, 1))
    assert only(view)["text"] == "Hello."
    view.fold(delta("late", 4))
    assert view.to_json() == log.transcript().to_json()


def test_live_output_of_a_tool_shows_as_its_output() -> None:
    log, view = Log(), Transcript()
    view.fold(log.add(TOOL, ONE, 1))
    view.fold(Delta(1, 0, TURN, ONE, 1, "tool.output", "a ", "c", "stdout", "at", "agent"))
    assert only(view)["output"] == "a "


def test_live_output_that_was_lost_leaves_a_mark_and_what_comes_twice_shows_once() -> None:
    view = Transcript()
    view.fold(Log().add(MODEL, ONE, 1))
    view.fold(delta("abc", 0))
    view.fold(delta("bc", 1))  # seen before
    view.fold(delta("cde", 2))  # half of it seen before
    assert only(view)["text"] == "abcde"
    view.fold(delta("z", 25))
    assert only(view)["text"] == f"abcde{GAP}z"
    view.fold(delta("never", 6))  # what was given up stays so
    assert only(view)["text"] == f"abcde{GAP}z"


def test_a_rewind_forgets_the_dead_attempt_before_the_new_one_is_there() -> None:
    log, view = Log(), Transcript()
    view.fold(log.add(MODEL, ONE, 1))
    view.fold(delta("dead", 0))
    view.fold(rewound(2))
    assert only(view)["text"] == ""
    view.fold(delta(" and gone", 4))
    view.fold(delta("early", 0, attempt=2))
    assert only(view)["text"] == ""
    view.fold(log.add(MODEL, ONE, 2))
    view.fold(delta("alive", 0, attempt=2))
    view.fold(rewound(2))  # told again: it is the attempt that is shown
    assert only(view)["text"] == "alive"


def test_a_new_attempt_forgets_the_old_one_without_a_rewind_too() -> None:
    log, view = Log(), Transcript()
    view.fold(log.add(MODEL, ONE, 1))
    view.fold(delta("dead", 0))
    view.fold(log.add(MODEL, ONE, 2))
    view.fold(delta(" and gone", 4))
    assert only(view)["text"] == ""


def test_live_output_and_rewinds_of_a_step_that_nobody_started_change_nothing() -> None:
    view = Transcript()
    view.fold(delta("text", 0))
    view.fold(rewound(2))
    assert view.to_json() == {"items": []}


@pytest.mark.parametrize("end", [TurnFinished(outcome="done"), TurnInterrupted()])
def test_the_end_of_a_turn_abandons_what_is_open_and_drops_its_text(end: EventData) -> None:
    log, view = Log(), Transcript()
    view.fold(log.add(MODEL, ONE, 1))
    view.fold(log.add(ANSWER, ONE, 1))
    view.fold(log.add(MODEL, TWO, 1))
    view.fold(delta("never finished", 0, TWO))
    view.fold(log.add(end))
    sealed, abandoned = view.to_json()["items"][:2]
    assert (sealed["state"], sealed["text"]) == ("sealed", "Hello.")
    assert (abandoned["state"], abandoned["text"], abandoned["seq"]) == ("abandoned", "", None)
    view.fold(delta("late", 14, TWO))
    assert view.to_json() == log.transcript().to_json()


def test_an_abandoned_tool_still_says_which_effect_it_may_have_had() -> None:
    log = Log()
    log.add(TOOL, ONE, 1)
    log.add(REQUEST, ONE, 1)
    log.add(TurnFinished(outcome="done"))
    (step,) = log.items()
    assert (step["state"], step["effect"], step["outcome"], step["output"]) == ("abandoned", "eff_1", None, "")


def test_a_fork_abandons_what_was_open_in_its_parent_and_says_where_it_left() -> None:
    log = Log()
    log.add(ConversationCreated())
    log.add(MODEL, ONE, 1)
    log.add(ConversationCreated(parent=Parent(conversation="conv_1", at=2)))
    step, note = log.items()
    assert step["state"] == "abandoned"
    assert (note["kind"], note["type"], note["seq"]) == ("note", "conversation.created", 3)
    assert note["data"]["parent"] == {"conversation": "conv_1", "at": 2}


def test_a_step_that_is_started_again_in_a_fork_is_open_again_in_its_place() -> None:
    log = Log()
    log.add(MODEL, ONE, 1)
    log.add(ConversationCreated(parent=Parent(conversation="conv_1", at=1)))
    log.add(MODEL, ONE, 1)
    step, _ = log.items()
    assert (step["state"], step["attempts"]) == ("open", 2)


@pytest.mark.parametrize(
    "data",
    [
        ApprovalRequested(approval="appr", question="May I?", expires_at="later"),
        MachineLost(machine="mach"),
        ConversationArchived(),
        TurnInterrupted(reason="enough"),
        TurnFinished(outcome="failed", reason="no model"),
    ],
    ids=lambda data: data.type,
)
def test_what_else_happened_is_a_note(data: EventData) -> None:
    log = Log()
    event = log.add(data)
    assert log.items() == [
        {"kind": "note", "type": data.type, "seq": 1, "at": "at-1", "actor": "prin_1", "data": event.data}
    ]


@pytest.mark.parametrize("data", [TurnStarted(agent="a", version=1, model="demo:"), TurnFinished(outcome="done")])
def test_what_the_messages_and_answers_say_already_is_not_shown(data: EventData) -> None:
    log = Log()
    log.add(data)
    assert log.items() == []


def test_a_seal_of_the_other_kind_decides_what_the_step_was() -> None:
    log = Log()
    log.add(TOOL, ONE, 1)
    log.add(ANSWER, ONE, 1)
    log.add(MODEL, TWO, 1)
    log.add(REQUEST, TWO, 1)  # in a model step: the answer lists its calls itself
    log.add(DONE, TWO, 1)
    answer, tool = log.items()
    assert (answer["kind"], answer["text"], "name" in answer) == ("answer", "Hello.", False)
    assert (tool["kind"], tool["output"], tool["arguments"]) == ("tool", "a b", None)


def test_an_event_that_comes_twice_changes_nothing() -> None:
    log = Log()
    log.add(MessageSent(message="msg_1", text="Hi"))
    log.add(MODEL, ONE, 1)
    transcript = log.transcript()
    before = transcript.to_json()
    for event in log.events:
        transcript.fold(event)
    assert transcript.to_json() == before
    assert transcript.head == 2


def test_an_event_of_a_newer_outlive_is_not_guessed_at() -> None:
    event = Log().add(MachineLost(machine="mach"))
    with pytest.raises(BrokenError):
        Transcript().fold(event._replace(v=99))
