"""A conversation that is compacted while processes die: it is summarised once in the log, nothing that was sealed is
bought again, the turn ends, and all that was said is there."""

from collections.abc import Iterator
from typing import Any

import pytest

from crash.loop.stacks import LoopStack, loop_stack
from eventually import eventually_sync
from outlive.base import CrashPoint

pytestmark = pytest.mark.timeout(300)

WITHIN_S = 120.0
AGENT = {
    "name": "forgetful",
    "model": "openai:pretend",
    "instructions": "Go on.",
    "tools": [],
    "compaction": {"at": 0.3, "keep": 1, "context_tokens": 8_000},
}
TURNS = 3
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopStack]:
    with (
        loop_stack(tmp_path_factory.mktemp("compaction"), OUTLIVE_LOOP__SWEEP_S="2") as stack,
        stack.trace.told_on_failure("the stack"),
    ):
        stack.must(stack.ask("POST", "/v1/agents", AGENT))
        yield stack
        stack.down()


def events_of(stack: LoopStack, conversation: str) -> Events:
    return list(stack.must(stack.ask("GET", f"/v1/conversations/{conversation}/events?limit=1000"))["items"])


def send(stack: LoopStack, conversation: str, text: str) -> None:
    stack.must(stack.ask("POST", f"/v1/conversations/{conversation}/messages", {"text": text}))


def ended(stack: LoopStack, conversation: str, turns: int) -> Events:
    found: Events = []

    def is_over() -> bool:
        found[:] = events_of(stack, conversation)
        return [event["type"] for event in found].count("turn.finished") == turns

    try:
        eventually_sync(is_over, WITHIN_S, every_s=0.2)
    except AssertionError as error:
        error.add_note("\n".join(f"{each['seq']} {each['type']} {str(each['data'])[:200]}" for each in found))
        raise
    return found


def begin(stack: LoopStack, summary: str) -> str:
    """A conversation whose next turn begins with a compaction."""
    made = stack.must(stack.ask("POST", "/v1/conversations", {"agent": "forgetful"}))
    for number in range(TURNS):
        told = f"[[summary {summary}]]" if number == TURNS - 1 else ""
        send(stack, made["id"], f"message {number} [[big 3000]] {told}")
        ended(stack, made["id"], number + 1)
    return str(made["id"])


def check(stack: LoopStack, events: Events, *, bought: int) -> None:
    types = [event["type"] for event in events]
    assert types.count("compaction.requested") == types.count("compaction.finished") == 1
    [sealed] = [event for event in events if event["type"] == "compaction.finished"]
    assert sealed["data"]["outcome"] == "compacted"
    answers = [event["data"]["text"] for event in events if event["type"] == "model.responded"]
    assert len(answers) == types.count("message.sent") == TURNS + 1
    assert answers[-1] == "Done."
    assert events[-1]["data"] == {"outcome": "done", "reason": None}
    calls = [call for call in stack.calls() if call.step == sealed["step"]]
    assert [call.outcome for call in calls].count("answered") == bought


@pytest.mark.parametrize(
    ("point", "bought"),
    [
        (CrashPoint.COMPACTION_AFTER_REQUEST, 1),
        (CrashPoint.COMPACTION_BEFORE_SEAL, 2),  # bought, and not in the log: it has to be asked again
        (CrashPoint.COMPACTION_AFTER_SEAL, 1),
    ],
)
def test_a_compaction_is_done_once_wherever_its_worker_dies(stack: LoopStack, point: CrashPoint, bought: int) -> None:
    conversation = begin(stack, "So far.")
    stack.arm(point)
    send(stack, conversation, "and now [[say Done.]]")
    events = ended(stack, conversation, TURNS + 1)
    assert not stack.is_armed(point)
    check(stack, events, bought=bought)


def test_a_compaction_whose_worker_is_killed_in_the_middle_is_done_by_the_next(stack: LoopStack) -> None:
    conversation = begin(stack, "so " * 150)  # some seconds long
    send(stack, conversation, "and now [[say Done.]]")

    def is_under_way() -> bool:
        last = events_of(stack, conversation)[-1]
        return bool(last["type"] == "step.started" and last["data"]["kind"] == "compaction")

    eventually_sync(is_under_way, WITHIN_S, every_s=0.05)
    stack.kill("worker")
    events = ended(stack, conversation, TURNS + 1)
    check(stack, events, bought=1)
    starts = [event for event in events if event["type"] == "step.started" and event["data"]["kind"] == "compaction"]
    assert [event["attempt"] for event in starts] == [1, 2]
    recovered = [event["data"]["what"] for event in events if event["type"] == "turn.recovered"]
    assert recovered == ["step_retried"]


def test_a_compaction_that_a_person_asked_for_is_done_though_the_api_dies_before_it_told_the_loop(
    stack: LoopStack,
) -> None:
    made = stack.must(stack.ask("POST", "/v1/conversations", {"agent": "forgetful"}))
    conversation = str(made["id"])
    send(stack, conversation, "one [[big 2000]] [[summary So far.]]")
    ended(stack, conversation, 1)
    pinned = events_of(stack, conversation)[1]["data"]["message"]
    told = stack.home.run("pin", conversation, pinned)
    assert told.returncode == 0, told.stderr
    assert pinned in told.stdout
    stack.arm(CrashPoint.TURN_AFTER_STEERING)
    stack.must(stack.ask("POST", f"/v1/conversations/{conversation}/compact", {"keep": 1}))
    assert not stack.is_armed(CrashPoint.TURN_AFTER_STEERING)
    said = stack.home.run("compact", conversation)
    assert (said.returncode, said.stdout) == (0, "asked for: the next turn begins with it\n"), said.stderr
    send(stack, conversation, "two [[say Two.]]")
    events = ended(stack, conversation, 2)
    types = [event["type"] for event in events]
    assert types.count("compaction.requested") == types.count("compaction.finished") == 1
    shown = stack.home.run("show", conversation)
    assert "compaction: " in shown.stdout
    assert "(pinned)" in shown.stdout
