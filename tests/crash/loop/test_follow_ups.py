"""A worker or the API dies around messages that wait: what was withdrawn is never told, what hurries is taken once."""

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
    "name": "worker",
    "model": "openai:pretend",
    "instructions": "Work.",
    "tools": ["shell", "wait"],
}
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopStack]:
    with (
        loop_stack(tmp_path_factory.mktemp("follow-ups"), OUTLIVE_LOOP__SWEEP_S="2") as stack,
        stack.trace.told_on_failure("the stack"),
    ):
        stack.must(stack.ask("POST", "/v1/agents", AGENT))
        yield stack
        stack.down()


def begin(stack: LoopStack, text: str) -> tuple[str, str]:
    made = stack.must(stack.ask("POST", "/v1/conversations", {"agent": "worker", "environment": "host"}))
    return str(made["id"]), send(stack, made["id"], text)["turn_id"]


def send(stack: LoopStack, conversation: str, text: str, **more: Any) -> dict[str, Any]:
    path = f"/v1/conversations/{conversation}/messages"
    return dict(stack.must(stack.ask("POST", path, {"text": text, **more})))


def events_of(stack: LoopStack, conversation: str) -> Events:
    return list(stack.must(stack.ask("GET", f"/v1/conversations/{conversation}/events?limit=1000"))["items"])


def until(stack: LoopStack, conversation: str, type: str) -> Events:
    found: Events = []

    def is_there() -> bool:
        found[:] = events_of(stack, conversation)
        return any(each["type"] == type for each in found)

    try:
        eventually_sync(is_there, WITHIN_S, every_s=0.2)
    except AssertionError as error:
        error.add_note("\n".join(f"{each['seq']} {each['type']} {str(each['data'])[:200]}" for each in found))
        raise
    return found


def requests_of(stack: LoopStack, events: Events) -> list[str]:
    steps = {each["step"] for each in events}
    return [json.dumps(stack._provider.request(call.number)) for call in stack.calls() if call.step in steps]


@pytest.mark.parametrize(
    "point", [CrashPoint.TOOL_AFTER_REQUEST, CrashPoint.TOOL_BEFORE_SEAL, CrashPoint.STEP_AFTER_START], ids=str
)
def test_a_message_that_hurries_is_taken_in_the_same_turn_wherever_the_worker_dies(
    stack: LoopStack, point: CrashPoint
) -> None:
    conversation, turn = begin(stack, '[[tool shell {"command": "echo x >> ran; sleep 200"}]] [[say Done.]]')
    if point == CrashPoint.TOOL_AFTER_REQUEST:
        stack.arm(point)
    until(stack, conversation, "tool.requested")
    if point != CrashPoint.TOOL_AFTER_REQUEST:
        stack.arm(point)  # dies when the command was stopped, or when the next answer is asked for
    follow_up = '[[tool shell {"command": "touch ran; wc -l < ran"}]] [[say At once.]]'
    assert send(stack, conversation, follow_up, when="now")["turn_id"] == turn
    events = until(stack, conversation, "turn.finished")
    assert not stack.is_armed(point)
    types = [each["type"] for each in events]
    assert types.count("message.sent") == 2
    assert types.count("message.hurried") == types.count("turn.finished") == 1
    first, second = [each["data"] for each in events if each["type"] == "tool.finished"]
    assert first["outcome"] in ("failed", "lost")
    assert second["output"].split()[0] in ("0", "1"), "it ran at most once"
    assert events[-1]["data"]["outcome"] == "done"
    assert events[-1]["turn"] == turn
    answers = [each["data"]["text"] for each in events if each["type"] == "model.responded"]
    assert answers[-1] == "At once."


@pytest.mark.parametrize("point", [CrashPoint.MODEL_BEFORE_CALL, CrashPoint.MODEL_AFTER_SEAL], ids=str)
def test_what_was_withdrawn_and_put_in_order_stays_so_wherever_the_worker_dies(
    stack: LoopStack, point: CrashPoint
) -> None:
    conversation, _ = begin(stack, '[[slow 20]] [[tool wait {"seconds": 0}]] [[say Done.]]')
    until(stack, conversation, "step.started")
    zebra, giraffe, lion = [send(stack, conversation, text)["message_id"] for text in ("zebra", "giraffe", "lion")]
    path = f"/v1/conversations/{conversation}/queue"
    told = stack.home.run("queue", "order", conversation, lion, giraffe, zebra)
    assert told.returncode == 0, told.stderr
    assert [line.split()[-1] for line in told.stdout.splitlines()] == ["TEXT", "lion", "giraffe", "zebra"]
    stack.must(stack.ask("DELETE", f"{path}/{giraffe}"))
    listed = json.loads(stack.home.run("queue", "list", conversation, "--json").stdout)["items"]
    assert [each["id"] for each in listed] == [lion, zebra]
    stack.arm(point)
    events = until(stack, conversation, "turn.finished")
    assert not stack.is_armed(point)
    requests = requests_of(stack, events)
    assert not any("giraffe" in each for each in requests)
    assert requests[-1].index("lion") < requests[-1].index("zebra")
    types = [each["type"] for each in events]
    assert types.count("queue.ordered") == types.count("message.withdrawn") == 1


def test_an_api_that_dies_behind_a_withdrawal_does_it_once(stack: LoopStack) -> None:
    conversation, _ = begin(stack, "[[slow 15]] [[say So.]]")
    until(stack, conversation, "step.started")
    message = send(stack, conversation, "giraffe")["message_id"]
    path = f"/v1/conversations/{conversation}/queue/{message}"
    for point in (CrashPoint.TURN_AFTER_STEERING, CrashPoint.API_BEFORE_RECORD):
        stack.arm(point)
        assert stack.must(stack.ask("DELETE", path))["items"] == []  # asked again, with the same key, until it is told
        assert not stack.is_armed(point)
    events = until(stack, conversation, "turn.finished")
    assert [each["type"] for each in events].count("message.withdrawn") == 1
    assert not any("giraffe" in each for each in requests_of(stack, events))
