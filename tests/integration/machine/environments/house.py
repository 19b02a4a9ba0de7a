"""A room with a node, and the builder and the pools of its environments in the process of the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine_rooms import MachineRoom, open_machine_room
from outlive.base import OperationId, SystemClock, new_operation_id, new_principal_id
from outlive.machine.building import EnvironmentBuilding
from outlive.machine.caller import MachineCaller
from outlive.machine.environment import EnvironmentDefinition
from outlive.machine.environments import Environments
from outlive.machine.node.door import NodeDoor
from outlive.machine.pool import WarmPool
from outlive.machine.spec import Limits
from outlive.machine.status import Environment, Machine

_CLOCK = SystemClock()
OWNER = new_principal_id()


@dataclass
class AskedBuilder:
    """Remembers what it was asked to build; the test builds it when it likes."""

    asked: list[tuple[str, int]] = field(default_factory=list)

    async def build(self, digest: str, tries: int) -> None:
        self.asked.append((digest, tries))


@dataclass
class House:
    room: MachineRoom
    builder: AskedBuilder
    building: EnvironmentBuilding
    environments: Environments
    pool: WarmPool

    async def build(self, definition: EnvironmentDefinition) -> Environment:
        """As the workflow does it."""
        found = await self.environments.define(definition)
        await self.building.build(found.digest, found.tries)
        await self.building.clean_up(found.digest, found.tries)
        return await self.environments.get(definition.name)

    async def create(self, environment: str, operation: OperationId | None = None) -> Machine:
        return await self.environments.create_machine(
            operation or new_operation_id(), environment=environment, owner=OWNER
        )


def a_definition(name: str, **fields: object) -> EnvironmentDefinition:
    limits = Limits(memory_mib=512, disk_mib=256)
    return EnvironmentDefinition.model_validate({"name": name, "base": "host", "limits": limits, **fields})


@asynccontextmanager
async def open_house(home: Path, **node: Any) -> AsyncIterator[House]:
    async with open_machine_room(home) as room, room.node(**node) as here:
        caller = MachineCaller(room.keeper, room.records.effects, NodeDoor(here), _CLOCK)
        builder = AskedBuilder()
        try:
            yield House(
                room,
                builder,
                EnvironmentBuilding(room.records, room.keeper, caller, room.objects, _CLOCK),
                Environments(room.records.environments, room.keeper, builder, room.objects.get, _CLOCK),
                WarmPool(room.records, room.keeper, room.settler, builder, _CLOCK),
            )
        finally:
            await room.empty()
