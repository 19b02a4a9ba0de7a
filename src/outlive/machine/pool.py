"""The warm pool: machines that were made beforehand, so that whoever wants one has it at once.

Rule 1: a machine waits in the pool of exactly one definition (its `environment` is the digest while it waits), and is
        taken out by one change of its record. Whoever fills the pool never touches one that was taken.
Rule 2: workers that fill the same pool at the same time make the same machines: their ids come from what the pool holds
        and the minute. So there is never more than a moment of too many, and no more than `IDS_A_MINUTE` a minute.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import anyio

from outlive.base import Clock, MachineId, OutliveError, derive_machine_id
from outlive.machine import lifecycle
from outlive.machine.building import HOUSE
from outlive.machine.environment import EnvironmentDefinition
from outlive.machine.environments import Builder
from outlive.machine.keeper import MachineKeeper, Settler
from outlive.machine.lifecycle import NO_CHANGE, Change
from outlive.machine.records import MachineFilter, Records
from outlive.machine.status import Environment, Machine

_log = logging.getLogger(__name__)

EVERY_S = 2.0
AT_ONCE = 4  # machines that one worker makes, wakes or lets go in one round
IDS_A_MINUTE = 32  # of one pool that stays as it is
REST_S = 60.0  # that a pool is left alone whose machine did not come up
_PAGE = 1_000
_ROUND_S = 30.0  # what takes longer goes on without us


class PoolPlan(NamedTuple):
    """What one round does."""

    create: tuple[Environment, ...]  # one machine of each; the same one again: another machine
    wake: tuple[MachineId, ...]
    release: tuple[MachineId, ...]
    troubled: frozenset[str]  # digests whose machines do not come up


def plan_pool(
    known: Sequence[Environment], warm: Sequence[Machine], *, resting: frozenset[str] = frozenset()
) -> PoolPlan:
    """Pure. `known`: what each name stands for now; `warm`: everything that waits in a pool."""
    wanted = {found.digest: found for found in known if found.state == "ready" and found.warm > 0}
    release, wake, troubled = [], [], set()
    present: dict[str, list[Machine]] = {digest: [] for digest in wanted}
    for machine in sorted((each for each in warm if each.desired != "deleted"), key=lambda each: each.id):
        found = wanted.get(machine.environment)
        if machine.state == "lost" and found is not None:
            troubled.add(found.digest)
        is_of_use = found is not None and machine.origin == found.checkpoint and machine.state not in ("lost", "paused")
        if found is None or not is_of_use or len(present[found.digest]) >= found.warm:
            release.append(machine.id)
        else:
            present[found.digest].append(machine)
            if machine.state == "hibernated":  # by the end of its node
                wake.append(machine.id)
    missing = [
        found
        for digest, found in sorted(wanted.items())
        if digest not in resting | troubled
        for _ in range(found.warm - len(present[digest]))
    ]
    return PoolPlan(tuple(missing[:AT_ONCE]), tuple(wake[:AT_ONCE]), tuple(release[:AT_ONCE]), frozenset(troubled))


def pool_ids(found: Environment, warm: Sequence[Machine], now: datetime) -> list[MachineId]:
    """Pure. The ids that new machines of a pool which holds these may have, in order."""
    minute = now.replace(second=0, microsecond=0)
    held = " ".join(sorted(each.id for each in warm if each.environment == found.digest))
    return [derive_machine_id(minute, f"{found.digest} {found.checkpoint} {n} {held}") for n in range(IDS_A_MINUTE)]


def wake_if_warm(machine: Machine, now: datetime) -> Change:
    """Pure. Whoever has taken it meanwhile decides on it alone."""
    return lifecycle.ask(machine, "wake", now) if machine.is_warm and machine.desired == "hibernated" else NO_CHANGE


class WarmPool:
    """Keeps all pools full, and sees to it that what shall be built is being built. Runs in every worker."""

    def __init__(
        self, records: Records, keeper: MachineKeeper, settler: Settler, builder: Builder, clock: Clock
    ) -> None:
        self._records = records
        self._keeper = keeper
        self._settler = settler
        self._builder = builder
        self._clock = clock
        self._resting: dict[str, float] = {}

    async def run(self) -> None:
        """For ever. What fails is said and tried again in the next round."""
        while True:
            try:
                await self.look_once()
            except OutliveError as error:
                _log.warning("filling the pools: %s", error.message)
            await anyio.sleep(EVERY_S)

    async def look_once(self) -> PoolPlan:
        known = await self._records.environments.list()
        for found in known:
            if found.state == "building":  # whoever was to start it may have died before
                await self._builder.build(found.digest, found.tries)
        warm = await self._records.machines.list(MachineFilter(is_warm=True), limit=_PAGE)
        now = self._clock.monotonic()
        self._resting = {digest: until for digest, until in self._resting.items() if until > now}
        plan = plan_pool(known, warm, resting=frozenset(self._resting))
        self._resting |= dict.fromkeys(plan.troubled, now + REST_S)
        made = await self._create(plan.create, warm)
        with anyio.move_on_after(_ROUND_S):
            await self._act(plan, made)
        return plan

    async def _act(self, plan: PoolPlan, made: Sequence[MachineId]) -> None:
        async with anyio.create_task_group() as group:
            for machine in plan.release:
                group.start_soon(self._release, machine)
            for machine in (*made, *plan.wake):
                group.start_soon(self._bring_up, machine)

    async def _create(self, wanted: Sequence[Environment], warm: Sequence[Machine]) -> list[MachineId]:
        """Their records. Of the ids of this minute the next that nobody has taken out of the pool since."""
        now = self._clock.now()
        ids = {found.digest: iter(pool_ids(found, warm, now)) for found in wanted}
        made = []
        for found in wanted:
            spec = EnvironmentDefinition.model_validate(found.definition).to_spec()
            for machine in ids[found.digest]:
                record = await self._records.machines.create(
                    Machine(
                        id=machine,
                        owner=HOUSE,
                        environment=found.digest,
                        spec=spec,
                        origin=found.checkpoint,
                        is_warm=True,
                        created_at=now,
                        changed_at=now,
                    )
                )
                if record.is_warm and record.desired == "running":
                    made.append(record.id)
                    break
        return made

    async def _release(self, machine: MachineId) -> None:
        try:
            await self._keeper.release(machine)
        except OutliveError as error:
            _log.warning("warm machine %s could not be let go: %s", machine, error.message)

    async def _bring_up(self, machine: MachineId) -> None:
        now = self._clock.now()
        try:
            await self._records.machines.change(machine, lambda found: wake_if_warm(found, now))
            await self._settler.settle(machine)
        except OutliveError as error:
            _log.warning("warm machine %s does not come up: %s", machine, error.message)
