"""From settings to what tools are made of, in a worker: the conversations' machines and the doors to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.client import Client

from outlive.loop.tools import ToolParts
from outlive.loop.tools.machine import ConversationMachines
from outlive.machine.caller import MachineCaller
from outlive.machine.environments import Environments
from outlive.machine.keeper import MachineKeeper
from outlive.wiring.build import Parts, machine_records, open_object_store
from outlive.wiring.machines import make_builder, make_settler, make_terminal_door, open_node_door
from outlive.wiring.settings import Settings


@asynccontextmanager
async def open_tool_parts(settings: Settings, parts: Parts, client: Client) -> AsyncIterator[ToolParts]:
    """`client` is Temporal's, which a worker has anyway."""
    objects = await open_object_store(settings)
    keeper = MachineKeeper(parts.machines, make_settler(client), parts.clock)
    environments = Environments(
        parts.environments,
        keeper,
        make_builder(client),
        objects.get,
        parts.clock,
        base_paths=settings.machines.base_paths,
    )
    async with open_node_door(settings, parts.machines, parts.nodes, parts.clock) as door:
        machines = ConversationMachines(
            parts.conversations,
            environments,
            keeper,
            MachineCaller(keeper, parts.effects, door, parts.clock),
            make_terminal_door(door),
            machine_records(parts),
            objects.get,
            parts.clock,
        )
        yield ToolParts(parts.conversations, parts.artifacts, machines)
