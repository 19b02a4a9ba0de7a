"""From settings to Temporal workers. Apart from the client, which every process loads: the API runs no worker.

Workflows run without Temporal's sandbox (it costs 17 times the memory); that they are deterministic is held by the
import contracts and the replay tests.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import anyio
from temporalio.client import Client
from temporalio.worker import (
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerTuner,
)

from outlive.wiring.settings import Settings

_STICKY_S = 2.0  # that a task waits for the worker that has its workflow in memory: how long a killed worker is missed
_BEAT_S = 2.0


def make_worker(
    client: Client,
    task_queue: str,
    settings: Settings,
    *,
    workflows: Sequence[type] = (),
    activities: Sequence[Callable[..., Any]] = (),
    asks_once: bool = False,
    tuner: WorkerTuner | None = None,
    beat_s: float = _BEAT_S,
) -> Worker:
    """A worker of one queue, with the options of the house. Whoever runs it owns it: `run`, then `shutdown`.
    `asks_once`: for one activity at a time, where others ask too. What was given to a process that does not run any
    more is missed only after its heartbeat, and each question that it has open swallows one. `tuner`: says when it may
    ask at all, instead of the settings. `beat_s`: between two heartbeats of an activity, at most; with them it hears
    that it is cancelled."""
    given = settings.worker
    return Worker(
        client,
        task_queue=task_queue,
        workflows=workflows,
        activities=activities,
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=given.cached_workflows,
        max_concurrent_activities=given.activities if tuner is None else None,
        max_concurrent_workflow_tasks=given.workflow_tasks if tuner is None else None,
        tuner=tuner,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        activity_task_poller_behavior=(PollerBehaviorSimpleMaximum(1) if asks_once else PollerBehaviorAutoscaling()),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=_STICKY_S),
        # A heartbeat that is late by the default of 30 s is no sign of life.
        max_heartbeat_throttle_interval=timedelta(seconds=beat_s),
        default_heartbeat_throttle_interval=timedelta(seconds=min(beat_s, 1.0)),
        graceful_shutdown_timeout=timedelta(seconds=given.grace_s),
    )


async def run_until_shut(worker: Worker) -> None:
    """Run a worker until `shut` is called; being cancelled alone does not cut off what it is doing."""
    with anyio.CancelScope(shield=True):
        await worker.run()


async def shut(worker: Worker, grace_s: float) -> None:
    """End a worker, with `grace_s` for its activities. One that does not end in time is left to the watchdog of
    `open_ending`."""
    with anyio.move_on_after(grace_s + 2, shield=True):
        await worker.shutdown()
