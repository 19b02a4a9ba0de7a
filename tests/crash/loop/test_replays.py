"""Replays whose worker or API is killed: asked for again they are the same, they end, and say each thing once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crash.machines.stacks import CrashStack
from eventually import eventually_sync
from integration.stack.homes import Home
from outlive.base import CrashPoint
from outlive.testing.pretend_provider import ProviderProcess, provider_process

POINTS = (
    CrashPoint.API_BEFORE_RECORD,
    CrashPoint.TURN_AFTER_PLAN,
    CrashPoint.MODEL_BEFORE_SEAL,
    CrashPoint.TOOL_BEFORE_SEAL,
    CrashPoint.TOOL_AFTER_SEAL,
    CrashPoint.TURN_BEFORE_END,
)
SCRIPT = '[[tool nothing {"n": 1}]] [[tool nothing {"n": 2}]] [[say Done.]]'
STRAY = '[[as stray]] [[tool nothing {"n": 1}]] [[tool nothing {"n": 3}]] [[say Never.]]'
ONCE = ("conversation.created", "message.sent", "replay.started", "turn.started", "replay.parted", "turn.finished")


class ReplayStack(CrashStack):
    """Without machines: replays run nothing."""

    def __init__(self, path: Path, provider: ProviderProcess) -> None:
        super().__init__(path, **provider.environment())
        self.home.environment["OUTLIVE_MACHINES__ENABLED"] = "off"

    def events(self, conversation: str, after: int = 0) -> list[dict[str, Any]]:
        page = self.ask("GET", f"/v1/conversations/{conversation}/events?limit=1000&after={after}")
        return list(self.must(page)["items"])

    def ended(self, conversation: str, after: int = 0) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []

        def is_over() -> bool:
            found[:] = self.events(conversation, after)
            return any(event["type"] == "turn.finished" for event in found)

        eventually_sync(is_over, 120.0, every_s=0.1)
        return found


@contextmanager
def _stack(path: Path) -> Iterator[tuple[ReplayStack, ProviderProcess]]:
    with provider_process() as provider:
        stack = ReplayStack(path, provider)
        home: Home = stack.home
        try:
            home.up()
            yield stack, provider
        finally:
            home.stop()


@pytest.mark.timeout(600)
def test_a_replay_ends_and_says_each_thing_once_wherever_somebody_dies(tmp_path: Path) -> None:
    with _stack(tmp_path) as (stack, provider), stack.trace.told_on_failure("the stack"):
        made = stack.must(stack.ask("POST", "/v1/conversations", {"model": "openai:was"}))
        stack.must(stack.ask("POST", f"/v1/conversations/{made['id']}/messages", {"text": SCRIPT + STRAY}))
        stack.ended(made["id"])
        seen: set[str] = set()
        for point in POINTS:
            eventually_sync(lambda: all(map(stack.pid_of, ("api", "worker"))) and stack.home.is_ready(), 120.0)
            stack.arm(point)
            body = {"model": "openai:stray"}
            replay = stack.must(
                stack.ask("POST", f"/v1/conversations/{made['id']}/replay", body, key=f"replay-{point}")
            )
            assert replay["id"] not in seen
            seen.add(replay["id"])
            events = stack.ended(replay["id"], replay["parent"]["at"])
            eventually_sync(lambda point=point: not stack.is_armed(point), 60.0)  # type: ignore[misc]
            types = Counter(event["type"] for event in events)
            assert {type: types[type] for type in ONCE} == dict.fromkeys(ONCE, 1), point
            [result] = [event["data"] for event in events if event["type"] == "tool.finished"]
            assert "There is no tool" in result["output"]
            assert types["model.responded"] == 2, "the next answer is never asked for"
            attempts = Counter(event["step"] for event in events if event["type"] == "step.started")
            calls = Counter(call.step for call in provider.calls() if call.step in attempts)
            assert all(calls[step] <= attempts[step] for step in attempts), point
        of_it = stack.must(stack.ask("GET", "/v1/conversations?limit=1000"))["items"]
        assert len([each for each in of_it if each["parent"] is not None]) == len(POINTS), "one for each key"
