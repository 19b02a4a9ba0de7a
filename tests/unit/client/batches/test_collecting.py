"""What came of an item, from the events of its conversation."""

from typing import Any

from outlive.base import InvalidError
from outlive.client import Event
from outlive.client.batches.collecting import Collected
from outlive.client.batches.items import read_items
from outlive.client.batches.plan import Task

[ITEM] = read_items("x.jsonl", '{"id": "a", "prompt": "Do it"}')


def event(type: str, turn: str | None = "turn_1", **data: Any) -> Event:
    return Event("evt_1", 1, None, "conv_1", turn, None, None, type, 1, "2026-01-01T00:00:00Z", "x", data)


def collect(*events: Event) -> dict[str, Any]:
    collected = Collected("conv_1")
    for each in events:
        collected.take(each)
    return collected.line(Task(ITEM, 2))


def usage(tokens: int, cost: float | None) -> dict[str, Any]:
    return {"input_tokens": tokens, "output_tokens": 1, "cost_usd": cost}


def test_a_line_has_the_last_answer_and_the_sum_of_what_was_used() -> None:
    line = collect(
        event("conversation.created", None),
        event("message.sent", text="Do it"),
        event("model.responded", text="I look.", usage=usage(5, 0.1)),
        event("model.responded", text="Done.", usage=usage(7, 0.2)),
        event("turn.finished", outcome="done", reason=None),
        event("message.sent", "turn_2", text="And you?"),
        event("model.responded", "turn_2", text="Later.", usage=usage(100, None)),
        event("turn.finished", "turn_2", outcome="failed"),
    )
    assert line == {
        "item": "a",
        "key": ITEM.key,
        "attempt": 2,
        "conversation": "conv_1",
        "turn": "turn_1",
        "outcome": "done",
        "answer": "Done.",
        "usage": {"input_tokens": 12, "output_tokens": 2, "cache_read_tokens": 0, "cache_write_tokens": 0},
        "cost": 0.3,
        "ended_at": "2026-01-01T00:00:00Z",
    }


def test_an_unknown_cost_is_not_none() -> None:
    answers = (event("model.responded", text="", usage=usage(1, cost)) for cost in (0.1, None, 0.1))
    assert collect(event("message.sent"), *answers)["cost"] is None


def test_a_question_waits_until_it_is_answered() -> None:
    asked = (event("message.sent"), event("approval.requested", question="May I?"))
    line = collect(*asked)
    assert (line["outcome"], line["question"]) == ("waiting", "May I?")
    assert "question" not in collect(*asked, event("approval.decided", decision="approve"))


def test_what_the_server_refuses_says_why() -> None:
    refused = Collected.refused(InvalidError("message.empty", "Say something."), None).line(Task(ITEM, 1))
    assert (refused["outcome"], refused["reason"]) == ("refused", "Say something. (message.empty)")
