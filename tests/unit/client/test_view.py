"""A view shows what was said, once, and takes back what a dead attempt said."""

from typing import Any

from outlive.client import Event, View

STEP = "step_1"


def event(type: str, seq: int | None = None, attempt: int | None = None, step: str | None = STEP, **data: Any) -> Event:
    return Event(
        id=None,
        seq=seq,
        position=f"p{seq}",
        conversation="conv_1",
        turn="turn_1",
        step=step,
        attempt=attempt,
        type=type,
        v=1,
        at=f"at {seq}",
        actor="somebody",
        data=data,
    )


def view_of(*events: Event) -> View:
    view = View()
    for each in events:
        view.fold(each)
    return view


def started(seq: int, attempt: int = 1, kind: str = "model") -> Event:
    return event("step.started", seq, attempt, kind=kind, name="shell")


def delta(text: str, offset: int, attempt: int = 1) -> Event:
    return event("model.delta", None, attempt, text=text, offset=offset)


def sealed(seq: int, attempt: int = 1) -> Event:
    return event(
        "model.responded", seq, attempt, text="whole", tool_calls=[], model="m", usage={}, stop_reason="end_turn"
    )


def text_of(view: View) -> list[str]:
    return [str(item.get("text", item.get("output", ""))) for item in view.items()]


def test_live_text_grows_and_the_seal_replaces_it() -> None:
    view = view_of(started(1), delta("Hel", 0), delta("lo", 3))
    assert text_of(view) == ["Hello"]
    item = view.fold(sealed(2))
    assert item is not None
    assert text_of(view) == ["whole"]
    assert view.open_items() == []


def test_a_rewind_takes_back_what_was_streamed() -> None:
    view = view_of(started(1), delta("dead", 0), event("step.rewound", None, 2))
    assert text_of(view) == [""]
    view.fold(delta("dead", 0, attempt=1))  # a zombie
    assert text_of(view) == [""]
    view.fold(started(2, attempt=2))
    view.fold(delta("new", 0, attempt=2))
    assert text_of(view) == ["new"]
    assert [item["attempts"] for item in view.items()] == [2]


def test_output_that_was_lost_on_the_way_shows_as_a_gap_and_what_came_twice_once() -> None:
    view = view_of(started(1), delta("abc", 0), delta("bcd", 1), delta("z", 9))
    assert text_of(view) == ["abcd…z"]


def test_what_was_never_sealed_goes_with_its_turn() -> None:
    view = view_of(started(1), delta("half", 0), event("turn.finished", 2, step=None, outcome="interrupted"))
    assert text_of(view)[0] == ""
    assert [item.get("state") for item in view.items()] == ["abandoned", None]


def test_a_view_that_begins_in_the_middle_shows_the_seal_of_a_step_it_did_not_see_start() -> None:
    view = view_of(delta("end of it", 40), sealed(9))
    assert text_of(view) == ["whole"]


def test_an_event_that_comes_again_changes_nothing() -> None:
    sent = event("message.sent", 1, step=None, message="msg_1", text="hi", attachments=[])
    view = view_of(sent, sent)
    assert text_of(view) == ["hi"]


def test_a_type_that_only_a_newer_server_knows_does_no_harm() -> None:
    view = view_of(event("comet.seen", 1, step=None, tail=True), event("comet.tail", None, 1, text="x"))
    assert view.items() == []
    assert view.head == 1


def test_the_request_of_a_tool_stays_beside_its_result() -> None:
    view = view_of(
        started(1, kind="tool"),
        event("tool.requested", 2, 1, call="c", name="shell", arguments={"a": 1}, effect="e"),
        event("tool.output", None, 1, call="c", stream="stdout", text="out", offset=0),
    )
    assert text_of(view) == ["out"]
    view.fold(
        event("tool.finished", 3, 1, call="c", effect="e", outcome="failed", output="all", exit_code=2, blob=None)
    )
    [item] = view.items()
    assert (item["arguments"], item["output"], item["outcome"], item["exit_code"]) == ({"a": 1}, "all", "failed", 2)


def test_a_fork_does_not_go_on_with_what_its_parent_left_open() -> None:
    view = view_of(started(1), delta("half", 0), event("conversation.created", 2, step=None, parent={"at": 1}))
    assert view.open_items() == []
    assert [item["kind"] for item in view.items()] == ["answer", "note"]


def compacted(seq: int, **more: Any) -> Event:
    return event("compaction.finished", seq, 1, outcome="compacted", summary="So far.", parts=8, **more)


def test_a_compaction_is_shown_while_it_is_made_and_a_pin_on_its_message() -> None:
    view = view_of(event("message.sent", 1, step=None, message="msg_1", text="hi", attachments=[]))
    view.fold(event("compaction.requested", 2, step=None, reason="asked"))
    view.fold(started(3, kind="compaction"))
    view.fold(delta("So", 0))
    [message, note, step] = view.items()
    assert (message["pinned"], note["type"]) == (False, "compaction.requested")
    assert (step["kind"], step["summary"], step["outcome"]) == ("compaction", "So", None)
    view.fold(compacted(4, reason=None))
    view.fold(event("message.pinned", 5, step=None, message="msg_1"))
    [message, _, step] = view.items()
    assert (message["pinned"], step["summary"], step["state"]) == (True, "So far.", "sealed")
