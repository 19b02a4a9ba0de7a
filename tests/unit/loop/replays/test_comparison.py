"""Two turns side by side, and as text."""

from outlive.cli.compared import CELL_LINES, compared_text
from outlive.loop.replays.comparison import Comparison, compare, side_of
from unit.loop.replays.turns import Writing, call


def compared(parted: dict[str, object] | None = None) -> Comparison:
    was, now = Writing(), Writing()
    for to, model in ((was, "openai:one"), (now, "anthropic:two")):
        to.message("Do it")
        to.begin(model=model)
        to.answer("I look.", call("a", command="ls"))
        to.result("a", "a.txt")
    was.answer("I write.", call("b", "write_file", path="a", content="b"))
    was.result("b", "", outcome="failed")
    was.answer("Done.")
    was.end()
    now.answer("I read.", call("b", "read_file", path="a"), cost=None)
    now.end()
    return compare(side_of("conv_1", "turn_1", was.events), side_of("conv_2", "turn_1", now.events), parted)


def test_like_steps_stand_beside_each_other() -> None:
    found = compared().to_json()
    rows = [
        (row["same"], *((step["name"] or step["text"]) if step else None for step in (row["left"], row["right"])))
        for row in found["rows"]
    ]
    assert rows == [
        (True, "I look.", "I look."),
        (True, "shell", "shell"),
        (False, "I write.", "I read."),
        (False, "write_file", "read_file"),
        (False, "Done.", None),
    ]
    assert found["rows"][3]["right"]["outcome"] is None, "it was never run"


def test_each_side_has_what_it_took() -> None:
    left, right = (compared().to_json()[side] for side in ("left", "right"))
    assert (left["model"], left["version"], left["outcome"], left["answers"], left["calls"]) == (
        "openai:one",
        3,
        "done",
        3,
        2,
    )
    assert (left["usage"]["input_tokens"], left["cost"], left["seconds"]) == (30, 1.5, 9.0)
    assert right["cost"] is None, "unknown is not free"


def test_as_text_they_stand_in_two_columns() -> None:
    parted = {"call": "b", "name": "read_file", "answered": 1, "execute": False}
    lines = compared_text(compared(parted).to_json(), 100).splitlines()
    assert all(len(line) <= 100 for line in lines[:-1])
    assert lines[0].split("│")[0].strip() == "openai:one"
    assert [line[:10].strip() for line in lines if line[:10].strip(" ─")] == [
        "answer",
        "tool",
        "≠ answer",
        "≠ tool",
        "≠ answer",
        "end",
        "steps",
        "tokens",
        "cost",
        "time",
        "They part",
    ]
    assert "→ not run" in "\n".join(lines)
    assert lines[-1] == "They part at read_file, after 1 call that matched: nothing was done from there on."


def test_what_somebody_said_is_harmless_and_bounded_on_the_screen() -> None:
    to = Writing()
    to.begin()
    to.answer("\x1b[31m" + "line\n" * 100)
    side = side_of("conv_1", "turn_1", to.events)
    text = compared_text(compare(side, side).to_json(), 80)
    assert "\x1b" not in text
    assert len(text.splitlines()) < CELL_LINES + 15
