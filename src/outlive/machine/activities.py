"""The steps as Temporal runs them: thin shells around records (on any worker) and around a node (on its own queue).

While a node works on a step a heartbeat goes out every second: a node that dies is missed within five, and the step is
run again, there or elsewhere. Each step may be run twice; see `lifecycle`.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import anyio
from temporalio import activity

from outlive.base import Clock, MachineId, NodeId, OutliveError
from outlive.machine import lifecycle
from outlive.machine.failures import to_failure
from outlive.machine.queues import CREATE, MACHINES, node_queue
from outlive.machine.records import CheckpointRecords, Effects, Gone, MachineRecords, Nodes
from outlive.machine.steps import FAIL, FORGET, PLAN, STEP_ACTIVITIES, Failure, Plan, Task

NODE_MARGIN_S = 10.0  # after the end of a node's lease, before its machines may come up elsewhere
_BEAT_S = 1.0


class RecordActivities:
    """What any worker can do: read and write records."""

    def __init__(
        self,
        machines: MachineRecords,
        effects: Effects,
        nodes: Nodes,
        checkpoints: CheckpointRecords,
        clock: Clock,
        *,
        margin_s: float,
    ) -> None:
        self._machines = machines
        self._effects = effects
        self._nodes = nodes
        self._checkpoints = checkpoints
        self._clock = clock
        self._margin_s = margin_s

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.plan, self.fail, self.declare_lost, self.forget)

    @activity.defn(name=PLAN)
    async def plan(self, task: Task) -> Plan:
        with as_failure():
            machine = await self._machines.get(task.machine)
            is_gone = machine.node is not None and await is_replaceable(
                self._nodes, machine.node, margin_s=self._margin_s
            )
            return make_plan(machine.node, lifecycle.next_step(machine, is_node_gone=is_gone))

    @activity.defn(name=FAIL)
    async def fail(self, failure: Failure) -> None:
        now = self._clock.now()
        with as_failure():
            await self._machines.change(
                failure.machine,
                lambda machine: lifecycle.give_up(machine, failure.step, now, reason=failure.reason),
            )

    @activity.defn(name=STEP_ACTIVITIES["declare_lost"])
    async def declare_lost(self, task: Task) -> None:
        with as_failure():
            machine = await self._machines.get(task.machine)
            node = machine.node
            if node is None or not await is_replaceable(self._nodes, node, margin_s=self._margin_s):
                return
            now = self._clock.now()
            await self._machines.change(
                task.machine,
                lambda machine: lifecycle.declare_lost(machine, node, now, reason=f"node {node} is gone"),
                gone=Gone(node, self._margin_s),
            )

    @activity.defn(name=FORGET)
    async def forget(self, task: Task) -> None:
        with as_failure():
            await forget_machine(self._machines, self._effects, self._checkpoints, task.machine, self._clock)


async def is_replaceable(nodes: Nodes, node: NodeId, *, margin_s: float) -> bool:
    """Whether this node is gone and another is there to take its machines. While it is the only one nothing is gained
    by giving them up: they go on without it, and it finds them again when it comes back."""
    if not await nodes.is_gone(node, margin_s=margin_s):
        return False
    for other in await nodes.list():
        if other.id != node and not other.is_draining and not await nodes.is_gone(other.id, margin_s=0.0):
            return True
    return False


async def forget_machine(
    machines: MachineRecords, effects: Effects, checkpoints: CheckpointRecords, machine: MachineId, clock: Clock
) -> None:
    """The record is `deleted`, and so is every checkpoint of it that nobody else needs. What ran in it is lost."""
    now = clock.now()
    await machines.change(machine, lambda found: lifecycle.end_remove(found, now))
    await effects.lose(machine, above=0, at=now)
    for checkpoint in await checkpoints.list(machine):
        await checkpoints.delete(checkpoint.id)


def make_plan(node: str | None, step: lifecycle.Step | None) -> Plan:
    """Which activity does this step, and where. Pure."""
    if step is None:
        return Plan()
    if step in lifecycle.PLACED_STEPS:
        return Plan(step=step, activity=STEP_ACTIVITIES[step], queue=CREATE, is_placed=True)
    if step == "remove" and node is None:
        return Plan(step=step, activity=FORGET, queue=MACHINES)
    if step == "declare_lost" or node is None:
        return Plan(step=step, activity=STEP_ACTIVITIES["declare_lost"], queue=MACHINES)
    return Plan(step=step, activity=STEP_ACTIVITIES[step], queue=node_queue(node))


class NodeSteps(Protocol):
    """What a node can do for a machine. Each may be repeated at any time."""

    async def boot(self, machine: MachineId) -> None: ...
    async def wake(self, machine: MachineId) -> None: ...
    async def freeze(self, machine: MachineId) -> None: ...
    async def thaw(self, machine: MachineId) -> None: ...
    async def checkpoint(self, machine: MachineId) -> None: ...
    async def hibernate(self, machine: MachineId) -> None: ...
    async def remove(self, machine: MachineId) -> None: ...


class NodeActivities:
    """The steps of one node."""

    def __init__(self, steps: NodeSteps) -> None:
        self._steps = steps

    @property
    def placed(self) -> Sequence[Callable[..., Any]]:
        """For the queue that all nodes share."""
        return (self.boot, self.wake)

    @property
    def own(self) -> Sequence[Callable[..., Any]]:
        """For the queue of this node."""
        return (self.freeze, self.thaw, self.checkpoint, self.hibernate, self.remove)

    @activity.defn(name=STEP_ACTIVITIES["boot"])
    async def boot(self, task: Task) -> None:
        await run_beating(partial(self._steps.boot, task.machine))

    @activity.defn(name=STEP_ACTIVITIES["wake"])
    async def wake(self, task: Task) -> None:
        await run_beating(partial(self._steps.wake, task.machine))

    @activity.defn(name=STEP_ACTIVITIES["freeze"])
    async def freeze(self, task: Task) -> None:
        await run_beating(partial(self._steps.freeze, task.machine))

    @activity.defn(name=STEP_ACTIVITIES["thaw"])
    async def thaw(self, task: Task) -> None:
        await run_beating(partial(self._steps.thaw, task.machine))

    @activity.defn(name=STEP_ACTIVITIES["checkpoint"])
    async def checkpoint(self, task: Task) -> None:
        await run_beating(partial(self._steps.checkpoint, task.machine))

    @activity.defn(name=STEP_ACTIVITIES["hibernate"])
    async def hibernate(self, task: Task) -> None:
        await run_beating(partial(self._steps.hibernate, task.machine))

    @activity.defn(name=STEP_ACTIVITIES["remove"])
    async def remove(self, task: Task) -> None:
        await run_beating(partial(self._steps.remove, task.machine))


async def run_beating(step: Callable[[], Awaitable[None]]) -> None:
    """Take a step, and say meanwhile that we live; its errors leave as Temporal's.

    The step has a task of its own. Temporal cancels the task of an activity, and no shield keeps that out: a record
    could be written and its sandbox be thrown away. What passes through the group waits for what is shielded."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await anyio.sleep(_BEAT_S)

    with as_failure():
        async with anyio.create_task_group() as group:

            async def take() -> None:
                await step()
                group.cancel_scope.cancel()

            group.start_soon(beat)
            group.start_soon(take)


@contextmanager
def as_failure() -> Iterator[None]:
    """What went wrong, as Temporal carries it. A task group wraps the one error of its body: it is taken out."""
    try:
        yield
    except OutliveError as error:
        raise to_failure(error) from error
    except BaseExceptionGroup as group:
        found = group.subgroup(OutliveError)
        if found is None:
            raise
        raise to_failure(_first(found)) from group


def _first(group: BaseExceptionGroup[OutliveError]) -> OutliveError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
