"""Subagents with real machines: each works where it was told to, its machine has an end, and wherever a worker dies
around it there is one subagent, whose work is done once and told of once."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from crash.loop.stacks import LoopStack, loop_stack
from eventually import eventually_sync
from outlive.base import CrashPoint

pytestmark = pytest.mark.timeout(300)

WITHIN_S = 120.0
AGENT = {
    "name": "lead",
    "model": "openai:pretend",
    "instructions": "Delegate.",
    "tools": ["shell", "write_file", "subagent"],
}
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopStack]:
    made = loop_stack(tmp_path_factory.mktemp("subagents"), OUTLIVE_LOOP__SWEEP_S="2")
    with made as stack, stack.trace.told_on_failure("the stack"):
        stack.must(stack.ask("POST", "/v1/agents", AGENT))
        yield stack
        stack.down()


def shell(command: str) -> str:
    return f"[[tool shell {json.dumps({'command': command})}]]"


def subagent(prompt: str, word: str = "tool", **more: Any) -> str:
    """With a script of its own in its prompt, which does not end the parent's."""
    given = json.dumps({"prompt": prompt, **more}).replace("[", "\\u005b").replace("]", "\\u005d")
    return f"[[{word} subagent {given}]]"


def begin(stack: LoopStack, text: str) -> str:
    made = stack.must(stack.ask("POST", "/v1/conversations", {"agent": "lead", "environment": "host"}))
    stack.must(stack.ask("POST", f"/v1/conversations/{made['id']}/messages", {"text": text}))
    return str(made["id"])


def show(stack: LoopStack, conversation: str) -> dict[str, Any]:
    return dict(stack.must(stack.ask("GET", f"/v1/conversations/{conversation}")))


def events_of(stack: LoopStack, conversation: str) -> Events:
    return list(stack.must(stack.ask("GET", f"/v1/conversations/{conversation}/events?limit=1000"))["items"])


def ended(stack: LoopStack, conversation: str, turns: int = 1) -> Events:
    found: Events = []

    def are_over() -> bool:
        found[:] = events_of(stack, conversation)
        return [event["type"] for event in found].count("turn.finished") == turns

    try:
        eventually_sync(are_over, WITHIN_S, every_s=0.2)
    except AssertionError as error:
        error.add_note("\n".join(f"{each['seq']} {each['type']} {each['data']}"[:300] for each in found))
        raise
    return found


def data_of(events: Events, type: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == type]


def is_asleep_or_gone(stack: LoopStack, machine: str, state: str) -> bool:
    return bool(stack.look(machine)["state"] == state)


def test_each_works_on_the_machine_that_it_was_given_and_what_it_had_for_itself_has_an_end(stack: LoopStack) -> None:
    look = shell("cat base 2>&1; echo $BASHPID > mine")
    here = subagent(f"{shell('cat base; echo here >> base')} [[quote 100]]")
    there = subagent(f"{look} [[quote 100]]", machine="fork")
    nowhere = subagent(f"{look} [[quote 100]]", "also tool", machine="new")
    conversation = begin(
        stack, f"{shell('echo one > base')} {here} {there} {nowhere} {shell('cat base; ls')} [[quote 99]]"
    )
    events = ended(stack, conversation)
    [attached] = data_of(events, "machine.attached")
    outputs = [each["output"] for each in data_of(events, "tool.finished")]
    assert outputs[1].startswith("one\n"), "it has the files of its parent"
    assert "one\nhere" in outputs[-1], "and its parent finds what it did"
    assert "mine" not in outputs[-1], "but not what was done on a copy"
    results = "".join(outputs[2:4])
    assert "one\nhere" in results
    assert "No such file" in results

    shown = stack.must(stack.ask("GET", f"/v1/conversations/{conversation}/subagents"))
    assert next((each["machine"], each["outcome"]) for each in shown["items"]) == ("same", "done")
    children = {each["machine"]: show(stack, each["conversation"]) for each in shown["items"]}
    assert children["same"]["machine"] == attached["machine"]
    assert children["same"]["subagent_of"]["conversation"] == conversation
    assert show(stack, conversation)["subagent_of"] is None
    terminals = stack.must(stack.ask("GET", f"/v1/machines/{attached['machine']}/terminals"))["items"]
    assert len(terminals) == 2, "each has a terminal of its own"
    eventually_sync(lambda: is_asleep_or_gone(stack, children["fork"]["machine"], "deleted"), WITHIN_S)
    eventually_sync(lambda: is_asleep_or_gone(stack, children["new"]["machine"], "hibernated"), WITHIN_S)
    for machine in (attached["machine"], children["new"]["machine"]):
        stack.do(machine, "delete")


@pytest.mark.parametrize(
    ("point", "is_detached"),
    [
        (CrashPoint.SUBAGENT_AFTER_CHILD, False),
        (CrashPoint.SUBAGENT_AFTER_START, False),
        (CrashPoint.SUBAGENT_BEFORE_TELL, False),
        (CrashPoint.SUBAGENT_BEFORE_TELL, True),
    ],
)
def test_there_is_one_subagent_told_of_once_wherever_a_worker_dies(
    stack: LoopStack, point: CrashPoint, is_detached: bool
) -> None:
    stack.arm(point)
    work = f"{shell('echo x >> /workspace/ran')} [[say Done it.]]"
    conversation = begin(stack, f"{subagent(work, detached=is_detached)} [[say Over.]]")
    eventually_sync(lambda: not stack.is_armed(point), WITHIN_S)

    def is_told() -> bool:
        return bool(data_of(events_of(stack, conversation), "subagent.finished"))

    eventually_sync(is_told, WITHIN_S, every_s=0.2)
    eventually_sync(lambda: show(stack, conversation)["state"] == "idle", WITHIN_S, every_s=0.2)
    events = events_of(stack, conversation)
    [started], [finished] = data_of(events, "subagent.started"), data_of(events, "subagent.finished")
    assert finished == {"conversation": started["conversation"], "outcome": "done"}
    reports = [event for event in events if event["actor"] == f"subagent:{finished['conversation']}"]
    assert [event["type"] for event in reports] == ["subagent.finished", "message.sent"][: 2 if is_detached else 1]
    [result] = data_of(events, "tool.finished")
    assert result["outcome"] == "finished"
    assert result["output"].startswith("Subagent" if is_detached else "Done it.")
    [attached] = {each["machine"] for each in data_of(events, "machine.attached")}
    assert stack.lines(attached) == ["x"]
    stack.do(attached, "delete")
