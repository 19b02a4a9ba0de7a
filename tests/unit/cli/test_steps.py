"""Steps as people read them: commands, diffs, notes, and what a turn came to; bounded and harmless."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.cli.render import PipeFollow, block_of, plain
from outlive.cli.screen import styled
from outlive.cli.steps import BRIEF_HEAD, BRIEF_TAIL, LINE_LIMIT, Tally, brief, note_text, tool_step
from outlive.client import Event
from unit.cli.test_render import HOSTILE, is_harmless


def event(
    type: str, seq: int | None = 1, attempt: int | None = 1, at: str = "2030-01-01T00:00:00Z", **data: Any
) -> Event:
    return Event(None, seq, None, "conv_1", "turn_1", "step_1", attempt, type, 1, at, "prin_1", data)


def tool(name: str, output: str = "", outcome: str | None = "finished", **arguments: Any) -> dict[str, Any]:
    return {
        "kind": "tool",
        "seq": 7,
        "name": name,
        "arguments": arguments,
        "output": output,
        "outcome": outcome,
        "exit_code": None,
        "attempts": 1,
        "state": "sealed",
    }


@pytest.mark.parametrize(
    ("item", "title"),
    [
        (tool("shell", command="pytest -q\n"), "$ pytest -q"),
        (tool("shell", command="serve", background=True), "$ serve &"),
        (tool("read_file", path="a.py"), "read a.py"),
        (tool("list_files", path="src", glob="*.py"), "list src *.py"),
        (tool("search", pattern="def x", path="src"), "search def x src"),
        (tool("publish", path="fix.diff"), "publish fix.diff"),
        (tool("of_a_user", a=1), 'tool of of_a_user {"a": 1}'),
    ],
)
def test_a_step_is_called_what_it_does(item: dict[str, Any], title: str) -> None:
    assert tool_step(item).title == title
    assert block_of(item).head == f"[7] {title}"


def test_an_edit_is_shown_as_what_goes_and_what_comes() -> None:
    edit = tool("edit_file", "Edited a.py.", path="a.py", old="one\ntwo", new="one\n2")
    assert tool_step(edit) == ("edit a.py", "- one\n- two\n+ one\n+ 2", "diff")
    write = tool("write_file", "Wrote", path="a.py", content="x\ny\n")
    assert tool_step(write) == ("write a.py", "+ x\n+ y", "diff")
    colours = {str(span.style) for span in styled(block_of(edit)).spans}
    assert {"green not bold", "red not bold"} <= colours


def test_an_edit_that_did_not_happen_shows_why() -> None:
    done = tool_step(tool("edit_file", "a.py: `old` is not in it.", outcome="failed", path="a.py", old="a", new="b"))
    assert (done.body, done.tone) == ("a.py: `old` is not in it.", "dim")


def test_the_diff_that_a_command_prints_is_one() -> None:
    assert tool_step(tool("shell", "diff --git a/x b/x\n+y\n", command="git diff")).tone == "diff"


def test_what_did_not_go_well_is_said_in_the_head() -> None:
    lost = tool("shell", outcome="lost", command="make")
    assert (block_of(lost).head, block_of(lost).style) == ("[7] $ make: lost", "bold red")
    failed = {**tool("shell", command="make"), "exit_code": 2}
    assert (block_of(failed).head, block_of(failed).style) == ("[7] $ make: exit code 2", "bold red")
    well = {**tool("shell", command="make"), "exit_code": 0}
    assert (block_of(well).head, block_of(well).style) == ("[7] $ make", "bold yellow")


@given(st.lists(st.text("ab", max_size=LINE_LIMIT * 2), max_size=100))
def test_a_brief_text_is_bounded_and_keeps_both_ends(lines: list[str]) -> None:
    text = "\n".join(lines)
    shown = brief(text).split("\n")
    assert len(shown) <= BRIEF_HEAD + BRIEF_TAIL + 1
    assert all(len(line) <= LINE_LIMIT + 1 for line in shown)
    assert shown[0][:LINE_LIMIT] == text.split("\n")[0][:LINE_LIMIT]
    assert shown[-1][:LINE_LIMIT] == text.split("\n")[-1][:LINE_LIMIT]


def test_a_screen_shows_little_of_a_long_output_and_a_transcript_all_of_it() -> None:
    long = tool("shell", "\n".join(str(number) for number in range(500)), command="seq 500")
    assert f"… {500 - BRIEF_HEAD - BRIEF_TAIL} lines …" in block_of(long, is_brief=True).body
    assert block_of(long).body.count("\n") == 499


@pytest.mark.parametrize(
    ("type", "data", "text"),
    [
        ("machine.attached", {"machine": "mach_1"}, "machine mach_1: attached"),
        (
            "machine.rolled_back",
            {"machine": "mach_1", "checkpoint": "ckpt_1", "effects": ["a", "b"]},
            "machine mach_1: rolled back; what 2 of its last steps did is gone",
        ),
        (
            "artifact.published",
            {"artifact": "art_1", "title": "The fix", "media_type": "text/x-diff", "size": 459},
            "published: The fix (text/x-diff, 459 bytes) art_1",
        ),
        (
            "turn.recovered",
            {"what": "step_retried", "step": "step_1", "attempt": 2, "reason": "worker lost"},
            "↺ attempt 2: worker lost",
        ),
        (
            "turn.recovered",
            {"what": "machine_lost", "reason": "its node is gone"},
            "↺ mended (machine lost): its node is gone",
        ),
        (
            "model.fallback",
            {"model": "b:2", "before": "a:1", "step": "step_1", "attempt": 4, "code": "model.outage", "reason": "away"},
            "↺ attempt 4: b:2 is asked instead of a:1: away",
        ),
        ("model.changed", {"model": "b:2", "before": "a:1", "scope": "turn"}, "from now on b:2 is asked"),
        (
            "model.changed",
            {"model": "b:2", "before": None, "scope": "conversation"},
            "from now on b:2 is asked in this conversation",
        ),
        ("turn.interrupted", {"reason": "enough"}, "interrupted by prin_1: enough"),
        ("turn.finished", {"outcome": "out_of_budget", "reason": None}, "the turn ended: out of budget"),
        (
            "approval.requested",
            {"approval": "appr_1", "question": 'May shell be run with {"command": "rm \'a  b\'"}?'},
            "? appr_1 (outlive approve or deny; --comment is the answer): "
            'May shell be run with {"command": "rm \'a  b\'"}?',
        ),
        (
            "approval.decided",
            {"approval": "appr_1", "decision": "deny", "comment": "not now"},
            "appr_1 was denied by prin_1: not now",
        ),
        ("approval.decided", {"approval": "appr_1", "decision": "expired", "comment": None}, "appr_1 expired"),
        (
            "wait.started",
            {"step": "step_1", "call": "c", "until": "2030-01-02T03:04:05Z"},
            "waits until 2030-01-02T03:04:05Z, or until a message comes",
        ),
        ("turn.paused", {"reason": "lunch"}, "paused by prin_1 from the next step on: lunch"),
        ("turn.resumed", {}, "resumed by prin_1"),
        (
            "subagent.started",
            {"conversation": "conv_1", "step": "step_1", "detached": True, "machine": "fork"},
            "subagent conv_1 begins, detached, on a copy of the machine",
        ),
        ("subagent.finished", {"conversation": "conv_1", "outcome": "done"}, "subagent conv_1 ended: done"),
        (
            "budget.raised",
            {"scope": "turn", "tokens": 100},
            "budget.raised: scope=turn, tokens=100",
        ),
    ],
)
def test_a_note_is_a_sentence(type: str, data: dict[str, Any], text: str) -> None:
    assert note_text({"kind": "note", "type": type, "actor": "prin_1", "data": data}) == text


@pytest.mark.parametrize("name", ["shell", "edit_file", "write_file", "read_file", "search", "publish", HOSTILE])
def test_hostile_arguments_and_outputs_are_harmless(name: str) -> None:
    hostile = dict.fromkeys(("command", "path", "old", "new", "content", "pattern", "glob", HOSTILE), HOSTILE)
    for outcome in ("finished", HOSTILE):
        assert is_harmless(plain(block_of({**tool(name, HOSTILE, outcome), "arguments": hostile})))
    for arguments in (None, 3, [HOSTILE], {"command": {HOSTILE: HOSTILE}}, {"content": None}):
        assert is_harmless(plain(block_of({**tool(name, HOSTILE), "arguments": arguments})))


@pytest.mark.parametrize(
    "type",
    [
        *("machine.lost", "machine.rolled_back", "artifact.published", "turn.recovered", "turn.finished"),
        *("approval.requested", "approval.decided", "wait.started", "subagent.started", "subagent.finished"),
    ],
)
def test_a_hostile_note_is_harmless(type: str) -> None:
    for value in (HOSTILE, 3, None, [HOSTILE], {HOSTILE: HOSTILE}):
        names = [
            *("machine", "effects", "title", "size", "media_type", "what", "attempt", "reason", "outcome", HOSTILE),
            *("approval", "question", "decision", "proposal", "comment", "until", "conversation", "detached"),
        ]
        assert is_harmless(note_text({"type": type, "actor": HOSTILE, "data": dict.fromkeys(names, value)}))


def test_a_turn_is_summed_up_when_it_ends() -> None:
    usage = {
        "input_tokens": 1000,
        "output_tokens": 50,
        "cache_read_tokens": 800,
        "cache_write_tokens": 100,
        "cost_usd": 0.01,
    }
    tally = Tally()
    told = [
        tally.take(each)
        for each in (
            event("turn.started", agent="coder"),
            event("step.started", kind="model"),
            event("step.started", attempt=2, kind="model"),
            event("model.responded", usage=usage),
            event("tool.finished", outcome="finished"),
            event("model.responded", usage=usage),
            event("turn.finished", at="2030-01-01T00:00:12.500000Z", outcome="done"),
        )
    ]
    assert told[:-1] == [None] * 6
    assert told[-1] == (
        "done in 12.5 s: 2 answers, 1 tool call, 1 retry, 3,800 tokens in (1,600 from cache), 100 out, $0.0200"
    )
    assert tally.take(event("turn.finished", outcome="failed")) == "failed: 0 answers, 0 tool calls"


def test_a_cost_that_is_not_known_is_not_counted_as_none() -> None:
    tally = Tally()
    tally.take(event("turn.started", agent="coder"))
    tally.take(event("model.responded", usage={"output_tokens": 5, "cost_usd": 0.01}))
    tally.take(event("model.responded", usage={"output_tokens": 5, "cost_usd": None}))
    assert str(tally.take(event("turn.finished", outcome="done"))).endswith("10 out, at least $0.0100")


def test_a_pipe_is_not_told_twice_what_a_command_printed() -> None:
    follow = PipeFollow()
    events = (
        event("step.started", 1, kind="tool", name="shell"),
        event("tool.requested", 2, call="c", name="shell", arguments={"command": "make"}, effect="e"),
        event("tool.output", None, call="c", stream="stdout", text="built\nagent@m:/workspace$ "),
        event("tool.finished", 3, call="c", effect="e", outcome="finished", output="built\n[exit code 1]", exit_code=1),
    )
    text = "".join(follow.show(each) for each in events)
    assert text.startswith("[…] $ make, live\n    built\n")
    assert text.count("built") == 1
    assert text.endswith("    [exit code 1]\n[3] $ make: exit code 1\n")


@pytest.mark.parametrize(
    ("printed", "output"),
    [
        ("one\n[notice] two\n", "one\n[notice] two\n[exit code 1]"),
        ("[notice] one\n", "[notice] one\n[exit code 1]"),
        ("a\nb\nc\nd\n", "a\n\n[... 2 bytes are left out here ...]\nc\nd\n[exit code 1]"),
        ("a\nb\n$ ", "a\nb\n[exit code 1]"),
    ],
)
def test_whatever_a_failing_command_printed_a_pipe_is_told_once(printed: str, output: str) -> None:
    follow = PipeFollow()
    events = (
        event("step.started", 1, kind="tool", name="shell"),
        event("tool.requested", 2, call="c", name="shell", arguments={"command": "make"}, effect="e"),
        event("tool.output", None, call="c", stream="stdout", text=printed),
        event("tool.finished", 3, call="c", effect="e", outcome="finished", output=output, exit_code=1),
    )
    text = "".join(follow.show(each) for each in events)
    told = "".join(f"    {line}\n" for line in printed.split("\n"))
    assert text == f"[…] $ make, live\n{told}    [exit code 1]\n[3] $ make: exit code 1\n"
