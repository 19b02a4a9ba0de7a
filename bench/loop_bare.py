"""The barest turn: a workflow that asks the same of Temporal as a turn of ours, with activities that do nothing.

It has a worker process of its own (run as a module), with the options of the house, on the same Temporal server, and is
started in the same way: by an update. Five activities with heartbeats, and one local activity.
"""

import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import anyio
from temporalio import activity, workflow
from temporalio.client import Client, WithStartWorkflowOperation, WorkflowUpdateStage
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy

from bench.lifeline import end_with_the_bench, hear, say
from bench.workshop import Workshop
from outlive.wiring.settings import Settings, read_settings
from outlive.wiring.temporal import connect_temporal
from outlive.wiring.temporal_worker import make_worker

QUEUE = "bench-bare-turn"
STEPS = 5
_SHORT = timedelta(seconds=20)
_STEP = timedelta(minutes=30)
_BEAT = timedelta(seconds=5)
_RETRY = RetryPolicy(initial_interval=timedelta(milliseconds=100))
_TASK = timedelta(seconds=5)


@activity.defn(name="bench.record")
async def record(of: str) -> str:
    return of


@activity.defn(name="bench.step")
async def step(of: str) -> str:
    return of


@workflow.defn(name="bench.turn")
class BareTurn:
    def __init__(self) -> None:
        self._submitted = 0

    @workflow.run
    async def run(self, of: str) -> None:
        await _take_steps(of, STEPS)
        await workflow.wait_condition(workflow.all_handlers_finished)

    @workflow.update(name="submit")
    async def submit(self) -> None:
        self._submitted += 1


@workflow.defn(name="bench.child")
class BareChild:
    """As a subagent that answers, runs a command and answers again."""

    @workflow.run
    async def run(self, of: str) -> None:
        await _take_steps(of, 3)


@workflow.defn(name="bench.family")
class BareFamily:
    """As a turn that answers, waits for a subagent and answers again."""

    @workflow.run
    async def run(self, of: str) -> None:
        await _take_steps(of, 1)
        await workflow.execute_child_workflow(BareChild.run, of, id=f"{of}-child")
        await _take_steps(of, 1)


async def _take_steps(of: str, steps: int) -> None:
    for _ in range(steps):
        await workflow.execute_activity(
            step, of, start_to_close_timeout=_STEP, heartbeat_timeout=_BEAT, retry_policy=_RETRY
        )
    await workflow.execute_local_activity(record, of, start_to_close_timeout=_SHORT, retry_policy=_RETRY)


class BareTurns:
    """The bench's side: starts such a worker, and takes turns."""

    def __init__(self, workshop: Workshop, settings: Settings, client: Client) -> None:
        self._client = client
        self._worker = workshop.start_python("bench.loop_bare")
        self._worker.tell(home=str(settings.home))
        self._worker.hear()

    async def take_turn(self) -> float:
        """Seconds from the update that starts one to its result."""
        id = f"bare-{uuid4().hex}"
        start = WithStartWorkflowOperation(
            BareTurn.run,
            id,
            id=id,
            task_queue=QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            task_timeout=_TASK,
        )
        started_at = time.perf_counter()
        await self._client.start_update_with_start_workflow(
            BareTurn.submit, start_workflow_operation=start, wait_for_stage=WorkflowUpdateStage.ACCEPTED
        )
        await (await start.workflow_handle()).result()
        return time.perf_counter() - started_at

    async def take_family_turn(self) -> float:
        """Seconds from the start of one that waits for a child to its result."""
        id = f"bare-{uuid4().hex}"
        started_at = time.perf_counter()
        await self._client.execute_workflow(BareFamily.run, id, id=id, task_queue=QUEUE, task_timeout=_TASK)
        return time.perf_counter() - started_at

    def stop(self) -> None:
        self._worker.stop()


async def _work(home: Path) -> None:
    settings = read_settings({"home": home})
    worker = make_worker(
        await connect_temporal(settings),
        QUEUE,
        settings,
        workflows=[BareTurn, BareChild, BareFamily],
        activities=[record, step],
        beat_s=0.3,
    )
    async with worker:
        say(ready=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    home = Path(hear()["home"])
    end_with_the_bench()
    anyio.run(_work, home, backend_options={"use_uvloop": True})
