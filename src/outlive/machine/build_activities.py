"""The build of an environment as Temporal runs it: on any worker, with a heartbeat while it lives."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from temporalio import activity

from outlive.machine.activities import as_failure, run_beating
from outlive.machine.build_steps import BUILD, CLEAN_UP, GIVE_UP, BuildFailure, BuildTask
from outlive.machine.building import EnvironmentBuilding


class BuildActivities:
    def __init__(self, building: EnvironmentBuilding) -> None:
        self._building = building

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.build, self.give_up, self.clean_up)

    @activity.defn(name=BUILD)
    async def build(self, task: BuildTask) -> None:
        await run_beating(partial(self._building.build, task.digest, task.tries))

    @activity.defn(name=GIVE_UP)
    async def give_up(self, failure: BuildFailure) -> None:
        with as_failure():
            await self._building.give_up(failure.digest, failure.tries, failure.reason)

    @activity.defn(name=CLEAN_UP)
    async def clean_up(self, task: BuildTask) -> None:
        await run_beating(partial(self._building.clean_up, task.digest, task.tries))
