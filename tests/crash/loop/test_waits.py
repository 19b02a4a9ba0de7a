"""A turn that asks a person and waits, with a real machine: nothing of it is left meanwhile, and wherever a process
dies around it, it is asked once, done once, and goes on when it is answered."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from crash.loop.stacks import LoopStack, loop_stack
from eventually import eventually_sync
from outlive.base import ConversationId, CrashPoint
from outlive.wiring.settings import read_settings
from outlive.wiring.temporal import connect_temporal
from services.webhook import Receiver

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("loop_crash_points")]

WITHIN_S = 120.0
AGENT = {
    "name": "careful",
    "model": "openai:pretend",
    "instructions": "Ask first.",
    "tools": ["shell", "write_file"],
    "policy": {"approve": ["shell"], "approve_expires_s": 86400},
}
SCRIPT = " ".join(
    (
        '[[tool write_file {"path": "/workspace/a.txt", "content": "kept"}]]',
        '[[tool shell {"command": "cat /workspace/a.txt; echo x >> /workspace/ran"}]] [[quote 100]]',
    )
)
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver(refusals=0).listening() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[LoopStack]:
    hook = {"OUTLIVE_APPROVALS__WEBHOOK_URL": receiver.url, "OUTLIVE_APPROVALS__WEBHOOK_SECRET": "s" * 32}
    with (
        loop_stack(tmp_path_factory.mktemp("waits"), OUTLIVE_LOOP__SWEEP_S="2", **hook) as stack,
        stack.trace.told_on_failure("the stack"),
    ):
        stack.must(stack.ask("POST", "/v1/agents", AGENT))
        yield stack
        stack.down()


def begin(stack: LoopStack) -> str:
    made = stack.must(stack.ask("POST", "/v1/conversations", {"agent": "careful", "environment": "host"}))
    stack.must(stack.ask("POST", f"/v1/conversations/{made['id']}/messages", {"text": SCRIPT}))
    return str(made["id"])


def events_of(stack: LoopStack, conversation: str) -> Events:
    return list(stack.must(stack.ask("GET", f"/v1/conversations/{conversation}/events?limit=1000"))["items"])


def parked(stack: LoopStack, conversation: str) -> dict[str, Any]:
    """The approval, once the turn waits for it and its machine sleeps."""

    def is_waiting() -> bool:
        shown = stack.must(stack.ask("GET", f"/v1/conversations/{conversation}"))
        return bool(shown["state"] == "waiting" and stack.look(shown["machine"])["state"] == "hibernated")

    try:
        eventually_sync(is_waiting, WITHIN_S, every_s=0.2)
    except AssertionError as error:
        error.add_note("\n".join(f"{each['seq']} {each['type']}" for each in events_of(stack, conversation)))
        raise
    items = stack.must(stack.ask("GET", "/v1/approvals?state=pending"))["items"]
    [found] = [each for each in items if each["conversation"] == conversation]
    return dict(found)


def ended(stack: LoopStack, conversation: str) -> Events:
    found: Events = []

    def is_over() -> bool:
        found[:] = events_of(stack, conversation)
        return bool(found[-1]["type"] == "turn.finished")

    eventually_sync(is_over, WITHIN_S, every_s=0.2)
    return found


def check_asked_once_and_done_once(stack: LoopStack, conversation: str, events: Events) -> None:
    types = [event["type"] for event in events]
    assert types.count("approval.requested") == types.count("approval.decided") == 1
    assert events[-1]["data"] == {"outcome": "done", "reason": None}
    answers = [event["data"]["text"] for event in events if event["type"] == "model.responded"]
    assert answers[-1].startswith("kept")
    assert types.index("approval.requested") < types.index("machine.hibernated") < types.index("machine.woken")
    [attached] = [event["data"]["machine"] for event in events if event["type"] == "machine.attached"]
    assert stack.lines(attached) == ["x"]
    stack.do(attached, "delete")


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.APPROVAL_AFTER_REQUEST,
        CrashPoint.TURN_AFTER_PARK,
        CrashPoint.TURN_AFTER_REST,
        CrashPoint.WEBHOOK_AFTER_POST,
    ],
)
def test_a_turn_asks_once_and_waits_wherever_its_worker_dies(
    stack: LoopStack, receiver: Receiver, point: CrashPoint
) -> None:
    stack.arm(point)
    conversation = begin(stack)
    eventually_sync(lambda: not stack.is_armed(point), WITHIN_S)
    asked = parked(stack, conversation)

    def told() -> list[str]:
        return [headers["webhook-id"] for headers, body in receiver.posted if asked["id"].encode() in body]

    eventually_sync(lambda: bool(told()), WITHIN_S)  # what is decided before that need not be told any more
    decided = stack.must(stack.ask("POST", f"/v1/approvals/{asked['id']}", {"decision": "approve"}))
    assert decided["state"] == "approved"
    check_asked_once_and_done_once(stack, conversation, ended(stack, conversation))
    assert len(set(told())) == 1, "whoever is told twice knows it by the id"


def test_a_decision_is_heard_though_the_api_dies_before_it_told_the_loop(stack: LoopStack) -> None:
    conversation = begin(stack)
    asked = parked(stack, conversation)
    stack.arm(CrashPoint.APPROVAL_AFTER_DECISION)
    decided = stack.must(stack.ask("POST", f"/v1/approvals/{asked['id']}", {"decision": "approve"}))
    assert not stack.is_armed(CrashPoint.APPROVAL_AFTER_DECISION)
    assert decided["state"] == "approved"
    check_asked_once_and_done_once(stack, conversation, ended(stack, conversation))


def test_a_resume_is_heard_though_the_api_dies_before_it_told_the_loop(stack: LoopStack) -> None:
    made = stack.must(stack.ask("POST", "/v1/conversations", {"agent": "careful"}))
    path = f"/v1/conversations/{made['id']}"
    stack.must(stack.ask("POST", f"{path}/messages", {"text": "[[slow 8]] [[say So.]]"}))
    told = stack.home.run("pause", made["id"], "--reason", "let me look")
    assert (told.returncode, told.stdout) == (0, f"paused: {made['id']}\n")
    stack.must(stack.ask("POST", f"{path}/messages", {"text": "[[say And so on.]]"}))
    eventually_sync(lambda: stack.must(stack.ask("GET", path))["state"] == "waiting", WITHIN_S, every_s=0.2)
    stack.arm(CrashPoint.TURN_AFTER_STEERING)
    stack.must(stack.ask("POST", f"{path}/resume", {}))
    assert not stack.is_armed(CrashPoint.TURN_AFTER_STEERING)
    events = ended(stack, str(made["id"]))
    types = [event["type"] for event in events]
    assert types.count("turn.paused") == types.count("turn.resumed") == 1
    answers = [event["data"]["text"] for event in events if event["type"] == "model.responded"]
    assert answers == ["So.", "And so on."]


def test_nothing_of_a_turn_that_waits_is_left_and_it_goes_on_after_the_stack_was_down(stack: LoopStack) -> None:
    conversation = begin(stack)
    asked = parked(stack, conversation)
    machine = stack.must(stack.ask("GET", f"/v1/conversations/{conversation}"))["machine"]
    eventually_sync(lambda: processes_of(machine) == [], WITHIN_S)  # it is told a moment before the last of them ends
    eventually_sync(lambda: anyio.run(pending_activities, stack, conversation) == 0, WITHIN_S)
    listed = json.loads(stack.home.run("approvals", "--json").stdout)["items"]
    assert [each["id"] for each in listed] == [asked["id"]]
    assert asked["id"] in stack.home.run("approvals").stdout

    assert stack.home.run("down").returncode == 0
    stack.home.up()
    told = stack.home.run("approve", asked["id"], "--comment", "Go.")
    assert (told.returncode, told.stdout) == (0, f"approved: {asked['id']}\n")
    events = ended(stack, conversation)
    again = stack.home.run("deny", asked["id"])
    assert (again.returncode, "approved before" in again.stderr) == (1, True)
    [decided] = [event for event in events if event["type"] == "approval.decided"]
    assert decided["data"]["comment"] == "Go."
    [finished] = [
        event["data"] for event in events if event["type"] == "tool.finished" if "kept" in event["data"]["output"]
    ]
    assert "Go." in finished["output"]
    [attached] = [event["data"]["machine"] for event in events if event["type"] == "machine.attached"]
    assert stack.lines(attached) == ["x"]
    stack.do(attached, "delete")


THRIFTY = {
    "name": "thrifty",
    "model": "openai:gpt-4.1",
    "instructions": "Spend little.",
    "tools": ["wait"],
    "budget": {"turn": {"steps": 2}},
}


@pytest.mark.parametrize(
    "point",
    [CrashPoint.APPROVAL_AFTER_REQUEST, CrashPoint.APPROVAL_AFTER_DECISION],
)
def test_more_budget_is_asked_for_once_and_given_once_wherever_somebody_dies(
    stack: LoopStack, point: CrashPoint
) -> None:
    stack.must(stack.ask("POST", "/v1/agents", THRIFTY))
    conversation = stack.must(stack.ask("POST", "/v1/conversations", {"agent": "thrifty"}))["id"]
    if point is not CrashPoint.APPROVAL_AFTER_DECISION:
        stack.arm(point)
    script = '[[tool wait {"until": "2020-01-01T00:00:00Z"}]] [[say Done.]]'
    stack.must(stack.ask("POST", f"/v1/conversations/{conversation}/messages", {"text": script}))

    def asked() -> dict[str, Any] | None:
        shown = stack.must(stack.ask("GET", f"/v1/conversations/{conversation}"))
        question = shown["budget"]["question"] if shown["state"] == "waiting" else None
        return dict(question) if question is not None and not stack.is_armed(point) else None

    eventually_sync(lambda: asked() is not None, WITHIN_S, every_s=0.2)
    shown = stack.home.run("budget", conversation).stdout
    assert ["turn", "steps", "2", "2"] in [line.split() for line in shown.splitlines()]
    if point is CrashPoint.APPROVAL_AFTER_DECISION:
        stack.arm(point)
    stack.must(stack.ask("POST", f"/v1/conversations/{conversation}/budget", {"steps": 3, "scope": "turn"}))
    assert not stack.is_armed(point)
    events = ended(stack, conversation)
    types = [event["type"] for event in events]
    assert [types.count(each) for each in ("approval.requested", "approval.decided", "budget.raised")] == [1, 1, 1]
    assert events[-1]["data"] == {"outcome": "done", "reason": None}


def processes_of(machine: str) -> list[str]:
    """What runs on this host for a machine."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if machine in command and int(process.name) != os.getpid():
            found.append(command)
    return found


async def pending_activities(stack: LoopStack, conversation: str) -> int:
    client = await connect_temporal(read_settings({"home": str(stack.home.path)}), WITHIN_S)
    described = await client.get_workflow_handle(ConversationId(conversation)).describe()
    return len(described.raw_description.pending_activities)
