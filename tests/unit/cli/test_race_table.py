"""A race as text."""

from dataclasses import replace
from itertools import pairwise

from outlive.cli.race_table import ANSWER_LINES, name_of, progress_line, side_by_side
from outlive.client import ContestantFacts, RaceFacts

FIRST = ContestantFacts(
    number=1,
    conversation="conv_1",
    machine="mach_1",
    model="demo:a",
    agent=None,
    state="ended",
    outcome="done",
    reason=None,
    answer="All is well.\nReally.",
    steps=1,
    usage={"input_tokens": 1_000, "output_tokens": 234},
    cost=0.01234,
)
LONG = "\x1b[31mlong words " * 100
SECOND = replace(FIRST, number=2, agent="coder", state="running", outcome=None, answer=LONG, cost=None, steps=4)
RACE = RaceFacts("race_1", "conv_0", 3, "Do", "running", None, (FIRST, SECOND), None)


def test_contestants_stand_side_by_side_in_what_room_there_is() -> None:
    for width in (100, 60, 10):
        text = side_by_side(RACE, {1: "1 file changed"}, width)
        assert width < 60 or all(len(line) <= width for line in text.split("\n"))
        assert "\x1b" not in text
        assert text.count("\n") < ANSWER_LINES + 10
    lines = side_by_side(RACE, {1: "1 file changed"}, 100).split("\n")
    assert lines[0].split() == ["1", "demo:a", "2", "coder", "demo:a"]
    rows = {line[:9].strip(): line[9:].split() for line in lines if line[:9].strip()}
    assert rows["tokens"] == ["1,234", "1,234"]
    assert rows["cost"] == ["$0.0123", "unknown"]
    assert rows["outcome"] == ["done", "running"]
    assert rows["changes"] == ["1", "file", "changed"]
    assert all(before != "" for before, _ in pairwise(lines))
    assert "changes" not in side_by_side(RACE, {}, 100)


def test_a_line_says_how_one_stands() -> None:
    assert progress_line(FIRST) == "1 demo:a: done, 1 step"
    assert progress_line(replace(SECOND, state="let_go")) == "2 coder demo:a: let go, 4 steps"
    assert name_of(replace(FIRST, model=None)) == "as the conversation"
    told = side_by_side(replace(RACE, contestants=(replace(FIRST, state="chosen", reason="why"), SECOND)), {}, 100)
    assert "done, chosen: why" in told
