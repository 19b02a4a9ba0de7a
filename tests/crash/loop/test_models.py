"""A model that is away and a fallback that stands in for it, and a model that a person changes, while processes die: it
is said once, and the turn ends by the model that the log names."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from crash.loop.stacks import LoopStack, loop_stack
from eventually import eventually_sync
from outlive.base import CrashPoint

pytestmark = pytest.mark.timeout(300)

WITHIN_S = 120.0
FIRST, SECOND = "openai:first", "openai:second"
AGENT = {"name": "steady", "model": FIRST, "instructions": "Go on.", "tools": ["list_files"], "fallbacks": [SECOND]}
AWAY = "[[tool list_files {}]] [[say All is well.]] [[as first]] [[error 529 always retry-after-ms=50]]"
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopStack]:
    with loop_stack(tmp_path_factory.mktemp("models")) as stack, stack.trace.told_on_failure("the stack"):
        stack.must(stack.ask("POST", "/v1/agents", AGENT))
        yield stack
        stack.down()


def begin(stack: LoopStack, text: str) -> str:
    made = stack.must(stack.ask("POST", "/v1/conversations", {"agent": "steady", "environment": "host"}))
    stack.must(stack.ask("POST", f"/v1/conversations/{made['id']}/messages", {"text": text}))
    return str(made["id"])


def events_of(stack: LoopStack, conversation: str) -> Events:
    return list(stack.must(stack.ask("GET", f"/v1/conversations/{conversation}/events?limit=1000"))["items"])


def ended(stack: LoopStack, conversation: str) -> Events:
    found: Events = []

    def is_over() -> bool:
        found[:] = events_of(stack, conversation)
        return bool(found[-1]["type"] == "turn.finished")

    try:
        eventually_sync(is_over, WITHIN_S, every_s=0.2)
    except AssertionError as error:
        error.add_note("\n".join(f"{each['seq']} {each['type']} {each['data']}"[:300] for each in found))
        raise
    return found


def data_of(events: Events, type: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == type]


def asked(events: Events) -> list[str]:
    return [each["name"] for each in data_of(events, "step.started") if each["kind"] == "model"]


def let_go(stack: LoopStack, events: Events) -> None:
    for attached in data_of(events, "machine.attached"):
        stack.do(attached["machine"], "delete")


@pytest.mark.parametrize(
    "point", [CrashPoint.MODEL_AFTER_FALLBACK, CrashPoint.MODEL_BEFORE_CALL, CrashPoint.MODEL_BEFORE_SEAL]
)
def test_a_fallback_is_said_once_and_ends_the_turn_wherever_its_worker_dies(
    stack: LoopStack, point: CrashPoint
) -> None:
    stack.arm(point)
    conversation = begin(stack, AWAY)
    eventually_sync(lambda: not stack.is_armed(point), WITHIN_S)
    events = ended(stack, conversation)
    [fallback] = data_of(events, "model.fallback")
    assert (fallback["before"], fallback["model"], fallback["attempt"]) == (FIRST, SECOND, 4)
    models = asked(events)
    assert models == sorted(models), "once it stands in, the first is not asked again"
    assert {answer["model"] for answer in data_of(events, "model.responded")} == {SECOND}
    assert events[-1]["data"] == {"outcome": "done", "reason": None}
    sealed = Counter(event["step"] for event in events if event["type"] == "model.responded")
    assert set(sealed.values()) == {1}
    explained = Counter(
        (each["step"], each["attempt"])
        for type in ("turn.recovered", "model.fallback")
        for each in data_of(events, type)
    )
    begun = [(event["step"], event["attempt"]) for event in events if event["type"] == "step.started"]
    assert explained == Counter(each for each in begun if each[1] > 1), "each further attempt is explained once"
    let_go(stack, events)


def test_a_change_of_the_model_is_said_once_and_holds_though_the_api_and_the_worker_die(stack: LoopStack) -> None:
    conversation = begin(stack, "[[slow 8]] [[tool list_files {}]] [[say Done.]]")
    eventually_sync(lambda: bool(asked(events_of(stack, conversation))), WITHIN_S, every_s=0.2)
    stack.arm(CrashPoint.TURN_AFTER_STEERING)
    stack.must(stack.ask("POST", f"/v1/conversations/{conversation}/model", {"model": SECOND}))
    assert not stack.is_armed(CrashPoint.TURN_AFTER_STEERING)
    stack.arm(CrashPoint.TOOL_AFTER_SEAL)
    events = ended(stack, conversation)
    assert not stack.is_armed(CrashPoint.TOOL_AFTER_SEAL)
    assert data_of(events, "model.changed") == [{"model": SECOND, "before": FIRST, "scope": "turn"}]
    assert asked(events) == [FIRST, SECOND]
    assert events[-1]["data"] == {"outcome": "done", "reason": None}
    let_go(stack, events)
    said = stack.home.run("model", conversation, "openai:second", "--conversation")
    assert (said.returncode, said.stdout) == (0, f"openai:second is asked from now on: {conversation}\n")
    refused = stack.home.run("model", conversation, "gpt", "--conversation")
    assert refused.returncode == 2
    assert "anthropic, demo, openai" in refused.stderr
