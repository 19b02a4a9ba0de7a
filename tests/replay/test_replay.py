"""The workflow as it is now, on histories of turns that ran before: whatever it decides must be what they say that it
decided then, or turns that are open would break when it is deployed. And one that was changed without a patch fails.

The histories were recorded by `record.py`, from a real stack.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from outlive.loop.plan import Plan
from outlive.loop.tasks import CALL_MODEL, COMPACT, END_TURN, INTERRUPT, PLAN, REST, RUN_TOOL, SUBMIT, TURN, TurnTask
from outlive.loop.workflow import Turn
from replay.record import HISTORIES, MARKER, SCENARIOS

pytestmark = pytest.mark.anyio

GOOD = sorted(HISTORIES.glob("*.json"))
MUST_FAIL = sorted((HISTORIES.parent / "must_fail").glob("*.json"))


def history_of(path: Path) -> WorkflowHistory:
    text = path.read_text()
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text)


async def replay(path: Path, kind: type = Turn) -> BaseException | None:
    """What is wrong with it, if anything."""
    replayer = Replayer(
        workflows=[kind], data_converter=pydantic_data_converter, workflow_runner=UnsandboxedWorkflowRunner()
    )
    return (await replayer.replay_workflow(history_of(path), raise_on_replay_failure=False)).replay_failure


@workflow.defn(name=TURN)
class Careful(Turn):
    """The same with one thing changed: it looks into the log twice before it does anything."""

    @workflow.init
    def __init__(self, task: TurnTask) -> None:
        super().__init__(task)

    @workflow.run
    async def run(self, task: TurnTask) -> None:
        await self._look()
        await super().run(task)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
async def test_a_turn_of_the_past_goes_on_with_the_workflow_of_today(path: Path) -> None:
    assert await replay(path) is None


@pytest.mark.parametrize("path", MUST_FAIL, ids=lambda path: path.stem)
async def test_a_history_that_this_workflow_cannot_have_made_is_refused(path: Path) -> None:
    assert "TMPRL1100" in str(await replay(path))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
async def test_a_workflow_that_was_changed_without_a_patch_is_refused(path: Path) -> None:
    assert "TMPRL1100" in str(await replay(path, Careful))


# ── what is in them ──


def test_every_kind_of_turn_that_can_be_recorded_is_kept() -> None:
    kept = {path.stem for path in GOOD}
    assert {scenario.__name__ for scenario in SCENARIOS} - kept == set()
    assert MUST_FAIL


def test_the_histories_hold_everything_that_the_workflow_asks_temporal_for() -> None:
    said = "\n".join(path.read_text() + "\n".join(_payloads(path)) for path in GOOD)
    for name in (PLAN, CALL_MODEL, COMPACT, RUN_TOOL, REST, END_TURN, SUBMIT, INTERRUPT):
        assert f'"{name}"' in said, name
    for kind in (
        "TIMER_FIRED",
        "TIMER_CANCELED",
        "ACTIVITY_TASK_CANCELED",
        "UPDATE_ACCEPTED",
        "UPDATE_COMPLETED",
        "lastFailure",
        "TYPE_HEARTBEAT",
    ):
        assert kind in said, kind


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_history_holds_references_and_nothing_that_was_said(path: Path) -> None:
    """The marker is in every message, answer and output of these turns."""
    assert MARKER not in path.read_text()
    for payload in _payloads(path):
        assert MARKER not in payload


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_history_says_nothing_of_the_host_that_ran_it(path: Path) -> None:
    text = path.read_text()
    assert set(re.findall(r'"identity": "([^"]*)"', text)) == {"outlive"}
    assert not re.search(r'"/[a-z]+/', text), "a path"


def test_a_plan_in_a_history_is_small_and_is_one_that_this_code_can_read() -> None:
    said = [payload for path in GOOD for payload in _payloads(path) if payload.startswith("{")]
    plans = [payload for payload in said if {"seq", "nothing"} <= json.loads(payload).keys()]
    assert len(plans) > len(GOOD)
    assert max(map(len, plans)) < 1_000
    for plan in plans:
        Plan.model_validate_json(plan)


def _payloads(path: Path) -> Iterator[str]:
    """All that was handed to Temporal, decoded."""

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(data := value.get("data"), str):
                try:
                    yield base64.b64decode(data, validate=True).decode(errors="replace")
                except binascii.Error:
                    yield data
            for each in value.values():
                yield from walk(each)
        elif isinstance(value, list):
            for each in value:
                yield from walk(each)

    yield from walk(json.loads(path.read_text()))
