"""The end of a node's machines when nobody else can do it: what still runs here is hibernated, without Temporal
and without an API. `outlive down` does it last, `outlive node --drain` at any time.
"""

from collections.abc import Callable

import anyio

from outlive.base import MachineId, SystemClock
from outlive.machine.node.node import Node, open_node
from outlive.machine.node.watch import keep_lease
from outlive.machine.records import MachineRecords
from outlive.machine.status import Node as NodeRecord
from outlive.wiring.build import open_object_store, open_stores
from outlive.wiring.node import has_leftovers, open_node_parts
from outlive.wiring.settings import Settings

DRAIN_WITHIN_S = 300.0
_NOWHERE = "unix:/nonexistent"  # nobody is served meanwhile

Say = Callable[[str], None]


def drain(settings: Settings, say: Say, within_s: float = DRAIN_WITHIN_S) -> list[MachineId]:
    """`drain_node`, bounded: what it does not come to goes on running, and that is said."""

    async def bounded() -> list[MachineId]:
        with anyio.move_on_after(within_s):
            return await drain_node(settings, say)
        say(f"not all were hibernated within {within_s:g} s; they go on running")
        return []

    return anyio.run(bounded)


async def drain_node(settings: Settings, say: Say) -> list[MachineId]:
    """Hibernate what runs on this node, whose process has ended (else `node.taken`). Returns the machines that could
    not be: they go on running. One that a person has paused keeps its files, not its memory. A node that has no machine
    any more is not listed."""
    if not has_leftovers(settings.node_path) and not (settings.node_path / "id").exists():
        return []  # no node has ever been here
    clock = SystemClock()
    async with open_stores(settings, clock) as stores:
        objects = await open_object_store(settings)
        async with (
            open_node_parts(settings, stores, objects, _Nobody(), clock) as parts,
            parts.sandboxes.guarded() as guard,
            open_node(parts, is_adopting=False) as node,
            anyio.create_task_group() as group,
        ):
            now = clock.now()
            record = NodeRecord(id=parts.node, address=_NOWHERE, lease_until=now, is_draining=True, started_at=now)
            # Without a lease nothing may run here, and what does not run cannot be asked to prepare for its sleep.
            await group.start(keep_lease, node, guard, record)
            await node.adoption.adopt()
            await _announce(node, parts.machines, say)
            stuck = await node.drain()
            group.cancel_scope.cancel()
        await stores.nodes.forget(parts.node)  # unless it still has machines; it is known again when it serves again
    return stuck


async def _announce(node: Node, records: MachineRecords, say: Say) -> None:
    number = len(node.residents)
    if number:
        say(f"hibernating {number} {'machine' if number == 1 else 'machines'} left on this host")
    for resident in node.residents:
        if "halted" in resident.frozen:
            say(f"{resident.id} was paused by a person: its files are saved, its memory is not")
        elif (await records.get(resident.id)).is_warm:
            say(f"{resident.id} waited in a warm pool: it is nobody's yet")
        else:
            say(f"{resident.id} still ran")


class _Nobody:
    """Nothing is settled while a node is drained."""

    async def settle(self, machine: MachineId) -> None:
        return
