"""A host that was taken away is not listed for ever."""

from pathlib import Path

import pytest

from machine_rooms import MachineRoom, open_machine_room
from outlive.base import NodeId, SystemClock, new_node_id
from outlive.machine.reconciler import FORGOTTEN_AFTER_S, Reconciler
from outlive.machine.status import Node

pytestmark = pytest.mark.anyio


async def a_node_whose_lease_ended(room: MachineRoom, ago_s: float, node: NodeId | None = None) -> NodeId:
    now = SystemClock().now()
    record = Node(id=node or new_node_id(), address="unix:/nowhere", lease_until=now, started_at=now)
    return (await room.records.nodes.renew(record, lease_s=-ago_s)).node.id


async def test_a_node_that_has_been_away_for_a_week_is_forgotten_unless_it_has_a_machine(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        holds = await a_node_whose_lease_ended(room, FORGOTTEN_AFTER_S + 60, node.parts.node)
        recent = await a_node_whose_lease_ended(room, FORGOTTEN_AFTER_S - 60)
        await a_node_whose_lease_ended(room, FORGOTTEN_AFTER_S + 60)
        records = room.records
        settler, clock = room.settler, SystemClock()
        reconciler = Reconciler(records.machines, records.checkpoints, records.nodes, settler, clock, margin_s=10.0)
        await reconciler.look_once()
        assert {each.id for each in await records.nodes.list()} == {holds, recent}
        await room.keeper.do(machine.id, "delete")
        await reconciler.look_once()
        assert {each.id for each in await records.nodes.list()} == {recent}
