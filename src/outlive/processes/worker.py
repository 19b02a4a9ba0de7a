"""The worker process: from settings to Temporal workers (of machines and of turns), and in reverse at the end.

It is ready when a workflow and an activity went through it from end to end. At the end: no new tasks, activities get
`worker.grace_s`, then they are cancelled and tried again elsewhere. Keeps no state: killed anywhere, another goes on.
"""

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
from temporalio.client import Client

from outlive.base import SystemClock
from outlive.loop.queues import LOOP
from outlive.loop.tools import ToolParts
from outlive.machine.activities import RecordActivities
from outlive.machine.build_activities import BuildActivities
from outlive.machine.build_workflow import BuildEnvironment
from outlive.machine.checkpoint import CheckpointStore
from outlive.machine.queues import MACHINES
from outlive.machine.reconciler import Reconciler
from outlive.machine.sweeper import Sweeper
from outlive.machine.workflow import SettleMachine
from outlive.processes.ending import open_ending
from outlive.processes.logs import log_to_stderr
from outlive.processes.machines import look_for_machines
from outlive.processes.ready import tell_ready
from outlive.wiring.build import open_object_store, open_parts
from outlive.wiring.forks import make_fork_sweepers
from outlive.wiring.loop import WORKFLOWS, open_loop_parts
from outlive.wiring.machines import make_settler, open_environment_parts
from outlive.wiring.ping import Ping, ping, pong
from outlive.wiring.settings import Settings, prepare_home
from outlive.wiring.temporal import connect_temporal
from outlive.wiring.temporal_worker import make_worker, run_until_shut, shut
from outlive.wiring.tools import open_tool_parts

_LOOP_BEAT_S = 0.3  # how late a turn hears that somebody stops it, at most

_log = logging.getLogger(__name__)


class Duties(NamedTuple):
    """What a worker does, besides answering pings."""

    workflows: Sequence[type] = ()
    activities: Sequence[Callable[..., Any]] = ()
    warm_up: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint  # what is made before it is ready


def main(settings: Settings, lifeline_fd: int | None = None, ready_fd: int | None = None) -> None:
    """Work until SIGTERM, SIGINT or the end of the lifeline. The descriptors are those a supervisor passes on."""
    os.umask(0o077)
    log_to_stderr()
    prepare_home(settings)
    anyio.run(_run, settings, lifeline_fd, ready_fd, backend_options={"use_uvloop": True})


async def _run(settings: Settings, lifeline_fd: int | None, ready_fd: int | None) -> None:
    async with open_ending(lifeline_fd) as ending, anyio.create_task_group() as work:
        work.start_soon(_open_and_work, settings, ready_fd)
        await ending.wait()
        work.cancel_scope.cancel()
    _log.info("stopped")


async def _open_and_work(settings: Settings, ready_fd: int | None) -> None:
    clock = SystemClock()
    client = await connect_temporal(settings)
    margin_s = settings.node.margin_s
    async with (
        open_parts(settings, clock) as parts,
        open_environment_parts(settings, parts, client, clock) as environments,
        open_tool_parts(settings, parts, client) as tools,
        open_loop_parts(settings, parts, _without_absent(settings, tools), client) as loop,
        anyio.create_task_group() as group,
    ):
        records = RecordActivities(
            parts.machines, parts.effects, parts.nodes, parts.checkpoints, clock, margin_s=margin_s
        )
        settler = make_settler(client)
        reconciler = Reconciler(parts.machines, parts.checkpoints, parts.nodes, settler, clock, margin_s=margin_s)
        sweeper = Sweeper(parts.checkpoints, CheckpointStore(await open_object_store(settings)), clock)
        of_forks = make_fork_sweepers(settings, parts, client)
        of_turns = (loop.sweeper, loop.saver, *of_forks) if settings.loop.enabled else ()
        for background in (reconciler, sweeper, environments.pool, *of_turns):
            group.start_soon(background.run)
        builds = BuildActivities(environments.building)
        duties = Duties((SettleMachine, BuildEnvironment), (*records.all, *builds.all))
        await _work(settings, client, duties, Duties(WORKFLOWS, loop.activities, loop.warm_up), ready_fd)


def _without_absent(settings: Settings, tools: ToolParts) -> ToolParts:
    """A stack that is all on this host has machines if this host has. Else some other host may have them."""
    if settings.temporal.is_embedded and not look_for_machines(settings).is_on:
        return replace(tools, machines=None)
    return tools


async def _work(settings: Settings, client: Client, duties: Duties, turns: Duties, ready_fd: int | None) -> None:
    """Two queues: what a machine waits for is not held up by turns, nor the other way round."""
    workers = [
        make_worker(
            client, MACHINES, settings, workflows=[Ping, *duties.workflows], activities=[pong, *duties.activities]
        )
    ]
    if settings.loop.enabled:
        workers.append(
            make_worker(
                client, LOOP, settings, workflows=turns.workflows, activities=turns.activities, beat_s=_LOOP_BEAT_S
            )
        )
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(run_until_shut, worker)
        try:
            took_ms = await ping(client)
            await turns.warm_up()
            _log.info("working", extra={"task_queues": [MACHINES, LOOP], "ping_ms": round(took_ms, 1)})
            tell_ready(ready_fd)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as ending:
                    for worker in workers:
                        ending.start_soon(shut, worker, settings.worker.grace_s)
