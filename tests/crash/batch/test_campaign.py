"""A short course of the crash campaign of batches, the same each time; `make crash ARGS=batch` runs the long one. And
its checker finds what it is there for."""

from collections import Counter
from pathlib import Path

import pytest

from crash.batch.campaign import Campaign, buying_wrongs, log_wrongs, made_wrongs, result_wrongs
from crash.batch.stacks import batch_stack
from outlive.client.batches import Line
from outlive.testing.pretend_provider import Call

SEED = 11


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("batch_campaign")
def test_each_item_is_done_exactly_once_though_stack_and_command_are_killed(tmp_path: Path) -> None:
    with batch_stack(tmp_path) as stack:
        outcome = Campaign(stack, tmp_path / "items.jsonl", SEED, lambda _: None).run(60, 3, 3, parallel=6)
    assert outcome.wrongs == []
    assert (outcome.results, outcome.conversations, outcome.steps) == (60, 60, 60)
    assert outcome.killed == {"stack": 3, "command": 3}
    assert "Waiting for it." in outcome.said
    assert "the stack is back" in outcome.said


RIGHT: list[Line] = [{"item": "i00000", "answer": "Answer 00000."}, {"item": "i00001", "answer": "Answer 00001."}]
NAMES = ["i00000", "i00001"]


def test_the_checker_finds_what_is_missing_doubled_or_mixed_up() -> None:
    assert result_wrongs(NAMES, RIGHT, []) == []
    for wrong in (RIGHT[:1], [*RIGHT, RIGHT[0]], [*RIGHT, {"item": "x", "answer": "Answer ."}]):
        assert result_wrongs(NAMES, wrong, [])
    assert result_wrongs(NAMES, [{**RIGHT[0], "answer": "Answer 00001."}, RIGHT[1]], [])
    assert result_wrongs(NAMES, RIGHT, [{}])
    assert made_wrongs(["a", "b"], 2) == []
    assert made_wrongs(["a", "a"], 2)
    types = ["conversation.created", "message.sent", "turn.started", "model.responded", "turn.finished"]
    assert log_wrongs("conv", types) == []
    assert log_wrongs("conv", [*types, "message.sent"])
    call = Call(1, "openai", "step_1", "m", 0, 1, "answered", 0.0)
    assert buying_wrongs([call], Counter(step_1=1)) == []
    assert buying_wrongs([call, call], Counter(step_1=1))
