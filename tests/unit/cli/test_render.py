"""What others wrote is harmless in a terminal, and text of a dead attempt is never left standing as if it were said."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.cli.render import (
    PipeFollow,
    block_of,
    clean,
    clean_line,
    facts_lines,
    json_text,
    plain,
    plain_table,
    row_of,
    tail_lines,
)
from outlive.client import ConversationFacts, Event

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b31m\x90q\r\x08\x00\x7f\u202eevil\u2066\ud800 end"


def is_harmless(text: str) -> bool:
    text.encode()  # no lone surrogate
    return all(
        character in "\n\t" or (unicodedata.category(character) != "Cc" and character not in "\u202e\u2066")
        for character in text
    )


def facts(**changes: Any) -> ConversationFacts:
    known: dict[str, Any] = {
        "id": "conv_1",
        "agent": None,
        "title": "t",
        "environment": None,
        "model": None,
        "metadata": {},
        "parent": None,
        "state": "idle",
        "turn": None,
        "machine": None,
        "head": 3,
        "created_by": "prin_1",
        "created_at": "2026-01-02T03:04:05.678901Z",
        "updated_at": "2026-01-02T03:04:05.678901Z",
        "archived_at": None,
    }
    return ConversationFacts(**(known | changes))


def event(type: str, seq: int | None, attempt: int | None = 1, step: str | None = "s", **data: Any) -> Event:
    return Event(None, seq, None, "conv_1", None, step, attempt, type, 1, "at", HOSTILE, data)


def test_newline_tab_and_letters_of_all_scripts_stay() -> None:
    text = "a\tb\n\u00e9\u4e2d\U0001f989\u05d0"
    assert clean(text) == text


def test_line_ends_of_other_systems_become_newlines() -> None:
    assert clean("a\r\nb\rc\u2028d\x85e") == "a\nb\nc\nd\ne"


@given(st.text(st.characters(exclude_categories=[])))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert is_harmless(clean(text))
    assert "\n" not in clean_line(text)
    assert json_text({"text": text}).isascii()
    assert is_harmless(json_text({"text": text}))


ITEMS: list[dict[str, Any]] = [
    {"kind": "message", "seq": 1, "actor": HOSTILE, "text": HOSTILE, "attachments": []},
    {
        "kind": "answer",
        "seq": 2,
        "attempt": 2,
        "attempts": 2,
        "state": "sealed",
        "model": HOSTILE,
        "text": HOSTILE,
        "tool_calls": [{"id": HOSTILE, "name": HOSTILE, "arguments": {HOSTILE: HOSTILE}}],
    },
    {
        "kind": "tool",
        "seq": None,
        "attempts": 1,
        "state": "abandoned",
        "name": HOSTILE,
        "arguments": {"command": HOSTILE},
        "outcome": HOSTILE,
        "output": HOSTILE,
    },
    {"kind": "note", "seq": 4, "type": HOSTILE, "data": {HOSTILE: HOSTILE, "list": [HOSTILE]}},
    {"kind": HOSTILE},
]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["kind"].split("\x1b")[0] or "unknown")
def test_hostile_text_in_any_field_of_an_item_is_harmless(item: dict[str, Any]) -> None:
    assert is_harmless(plain(block_of(item)))


def test_hostile_text_in_the_facts_of_a_conversation_is_harmless() -> None:
    hostile = facts(
        id=HOSTILE,
        title=HOSTILE,
        agent=HOSTILE,
        state=HOSTILE,
        machine=HOSTILE,
        created_by=HOSTILE,
        updated_at=HOSTILE,
        parent={"conversation": HOSTILE, "at": HOSTILE},
    )
    assert is_harmless("\n".join(facts_lines(hostile)))
    assert is_harmless(plain_table([row_of(hostile)]))
    assert plain_table([row_of(hostile)]).count("\n") == 1


def test_a_table_has_a_line_for_each_conversation() -> None:
    lines = plain_table([row_of(facts()), row_of(facts(id="conv_22", title="x" * 200))]).splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "conv_1", "conv_22"]
    assert lines[2].endswith("…")
    assert "2026-01-02 03:04:05Z" in lines[1]


def test_json_has_every_field_of_an_event() -> None:
    shown = json.loads(json_text(event("message.sent", 1, text="é").to_json()))
    assert shown["data"] == {"text": "é"}
    assert list(shown) == "id seq position conversation turn step attempt type v at actor data".split()


# ── following into a pipe ──


def shown(*events: Event) -> str:
    follow = PipeFollow()
    return "".join(follow.show(each) for each in events)


def answer(text: str, seq: int = 9, attempt: int = 1) -> Event:
    return event("model.responded", seq, attempt, text=text, tool_calls=[], model="m")


def started(seq: int = 1, attempt: int = 1) -> Event:
    return event("step.started", seq, attempt, kind="model", name="m")


def delta(text: str, attempt: int = 1) -> Event:
    return event("model.delta", None, attempt, text=text)


def test_live_text_that_the_seal_confirms_is_not_said_twice() -> None:
    text = shown(started(), delta("Hello "), delta("you\n"), answer("Hello you\n"))
    assert text.count("Hello you") == 1
    assert text.endswith("[9] answer of m, as above\n")


def test_no_answer_ends_with_a_head_that_promises_more() -> None:
    demo = event("model.responded", 9, text="Hi", tool_calls=[], model="demo:")
    assert shown(started(), delta("Hi"), demo).endswith("    Hi\n[9] answer of demo, as above\n")
    assert shown(started(), demo) == "[9] answer of demo\n    Hi\n"


def test_live_text_that_was_not_all_is_said_whole_by_the_seal() -> None:
    assert shown(started(), delta("lo you"), answer("Hello you")).count("Hello you") == 1


def test_a_pipe_is_told_to_forget_a_dead_attempt() -> None:
    text = shown(
        started(),
        delta("dead words"),
        event("step.rewound", None, 2),
        started(2, 2),
        delta("new words", 2),
        answer("new words", attempt=2),
    )
    told = "… attempt 2 of the step begins, forget the text above\n"
    assert told in text
    assert "dead words" in text.split(told)[0]
    assert "dead words" not in text.split(told)[1]
    assert text.split(told)[1].count("new words") == 1


def test_two_steps_at_once_do_not_mix_their_lines() -> None:
    other = event("model.delta", None, 1, step="t", text="other")
    lines = shown(started(), delta("one"), other, delta("two")).splitlines()
    assert [line.strip() for line in lines if not line.startswith("[")] == ["one", "other", "two"]


def test_a_hostile_stream_is_harmless_in_a_pipe() -> None:
    events = (started(), delta(HOSTILE), event("step.rewound", None, 2), answer(HOSTILE, attempt=2))
    assert is_harmless(shown(*events, event("message.sent", 10, text=HOSTILE, step=None)))
    assert is_harmless(shown(event(HOSTILE, 1, text=HOSTILE)))


# ── following on a terminal ──


@given(st.text("ab \n\t", max_size=200), st.integers(1, 20), st.integers(1, 10))
def test_a_live_region_never_outgrows_its_room(text: str, width: int, height: int) -> None:
    lines = tail_lines(text, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


def test_a_live_region_shows_the_end() -> None:
    assert tail_lines("one\ntwo\nthree four", 5, 2) == ["three", "four"]


def test_a_compaction_is_followed_as_a_step_whose_summary_is_written_once() -> None:
    def happened(type: str, seq: int | None, **data: Any) -> Event:
        return Event(None, seq, f"p{seq}", "conv_1", "turn_1", "step_1", 1, type, 1, "at", "agent:coder", data)

    follow = PipeFollow()
    shown = follow.show(happened("compaction.requested", 1, reason="full"))
    shown += follow.show(happened("step.started", 2, kind="compaction", name="demo:"))
    shown += follow.show(happened("model.delta", None, text="So far.", offset=0))
    sealed = {"outcome": "compacted", "summary": "So far.", "parts": 8, "before": 4000, "after": 900, "usage": {}}
    shown += follow.show(happened("compaction.finished", 3, **sealed))
    assert shown == (
        "[1] the conversation is as long as the model can read: what is old is summarised first\n"
        "[…] summary, live\n    So far.\n"
        "[3] compaction: 8 parts are told by a summary from here on (about 4,000 tokens before, 900 after), as above\n"
    )
    failed = {"kind": "compaction", "seq": 4, "outcome": "failed", "reason": HOSTILE}
    assert is_harmless(block_of(failed).head)
