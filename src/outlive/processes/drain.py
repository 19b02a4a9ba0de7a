"""The end of a node's machines when nobody else can do it: what still runs here is hibernated, without Temporal
and without an API. `outlive down` does it last, `outlive node --drain` at any time.
"""

from collections.abc import Callable

from outlive.base import MachineId, SystemClock
from outlive.machine.node.node import open_node
from outlive.wiring.build import open_object_store, open_stores
from outlive.wiring.node import has_leftovers, open_node_parts
from outlive.wiring.settings import Settings

Say = Callable[[str], None]


async def drain_node(settings: Settings, say: Say) -> list[MachineId]:
    """Hibernate what runs on this node. Returns the machines that could not be: they go on running."""
    if not has_leftovers(settings.node_path):
        return []
    clock = SystemClock()
    async with open_stores(settings, clock) as stores:
        objects = await open_object_store(settings)
        async with open_node_parts(settings, stores, objects, _Nobody(), clock) as parts, open_node(parts) as node:
            say(f"hibernating {len(node.residents)} machines that still run here")
            return await node.drain()


class _Nobody:
    """Nothing is settled while a node is drained."""

    async def settle(self, machine: MachineId) -> None:
        return
