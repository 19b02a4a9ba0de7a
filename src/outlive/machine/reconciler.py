"""What nobody is waiting for: machines that a dead node or a lost run left unsettled, checkpoints that nobody needs any
more, nodes that have been away for long. Runs in every worker; each piece of work is safe to do twice and at the same
time.
"""

import logging

import anyio

from outlive.base import Clock, MachineId, OutliveError
from outlive.machine import lifecycle
from outlive.machine.activities import is_replaceable
from outlive.machine.keeper import Settler
from outlive.machine.records import CheckpointRecords, MachineFilter, MachineRecords, Nodes
from outlive.machine.status import Machine

_log = logging.getLogger(__name__)

EVERY_S = 5.0
FORGOTTEN_AFTER_S = 7 * 24 * 3600.0  # a node without a lease that has no machine: its host was taken away
KEPT_CHECKPOINTS = 8  # of one machine; older ones go
_PAGE = 200
_AT_ONCE = 8
_TRY_AGAIN_S = 60.0  # that one whose run failed is left alone


class Reconciler:
    def __init__(
        self,
        machines: MachineRecords,
        checkpoints: CheckpointRecords,
        nodes: Nodes,
        settler: Settler,
        clock: Clock,
        *,
        margin_s: float,
    ) -> None:
        self._machines = machines
        self._checkpoints = checkpoints
        self._nodes = nodes
        self._settler = settler
        self._clock = clock
        self._margin_s = margin_s
        self._left_alone: dict[MachineId, float] = {}

    async def run(self) -> None:
        """For ever. What fails is said and tried again in the next round."""
        while True:
            try:
                await self.look_once()
            except* OutliveError as failed:  # a task group wraps what fails in it
                _log.warning("reconciling machines: %s", "; ".join(str(error) for error in failed.exceptions))
            await anyio.sleep(EVERY_S)

    async def look_once(self) -> None:
        """Settle all that is not, and let go of what is not needed."""
        now = self._clock.monotonic()
        self._left_alone = {machine: until for machine, until in self._left_alone.items() if until > now}
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        async with anyio.create_task_group() as group:
            before: MachineId | None = None
            while page := await self._machines.list(MachineFilter(is_warm=None), limit=_PAGE, before=before):
                for machine in page:
                    if machine.id not in self._left_alone and await self._needs_work(machine):
                        group.start_soon(self._settle, machine, limiter)
                before = page[-1].id
        await self._checkpoints.expire(self._clock.now())
        for node in await self._nodes.list():
            if await self._nodes.is_gone(node.id, margin_s=FORGOTTEN_AFTER_S):
                await self._nodes.forget(node.id, margin_s=FORGOTTEN_AFTER_S)

    async def _needs_work(self, machine: Machine) -> bool:
        # What is being booted is on a node that works on it: a run is under way, or the node is gone.
        is_gone = machine.node is not None and await is_replaceable(self._nodes, machine.node, margin_s=self._margin_s)
        return lifecycle.next_step(machine, is_node_gone=is_gone) is not None

    async def _settle(self, machine: Machine, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            try:
                await self._settler.settle(machine.id)
            except OutliveError as error:
                _log.warning("machine %s: %s", machine.id, error.message)
                self._left_alone[machine.id] = self._clock.monotonic() + _TRY_AGAIN_S
                return
        after = await self._machines.get(machine.id)
        if not after.is_settled:  # its run gave up: a person may ask again at any time, we wait
            self._left_alone[machine.id] = self._clock.monotonic() + _TRY_AGAIN_S


async def prune_checkpoints(checkpoints: CheckpointRecords, machine: MachineId, kept: int = KEPT_CHECKPOINTS) -> None:
    """Let go of a machine's oldest checkpoints. Those that something needs stay, whatever their age."""
    for checkpoint in (await checkpoints.list(machine))[kept:]:
        if checkpoint.state == "ready":
            await checkpoints.delete(checkpoint.id)
