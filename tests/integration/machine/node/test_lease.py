"""A node that cannot tell its watchdog how long its machines may run: they stand still, and the node goes on."""

from pathlib import Path

import anyio
import pytest

from descriptors import no_descriptors_left
from eventually import eventually
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import MachineId, OutliveError, UnavailableError
from outlive.machine.node.node import Node
from outlive.machine.node.watch import keep_lease
from outlive.machine.sandbox import Sandbox
from outlive.machine.status import Node as NodeRecord

pytestmark = pytest.mark.anyio

LEASE_S, BEAT_S = 2.0, 0.2


def _record(node: Node) -> NodeRecord:
    now = node.parts.clock.now()
    return NodeRecord(id=node.parts.node, address="unix:/nowhere", lease_until=now, started_at=now)


async def _stands_still(node: Node, sandbox: Sandbox) -> bool:
    before = (await node.parts.sandboxes.usage(sandbox)).cpu_s

    async def has_used_cpu() -> bool:
        return (await node.parts.sandboxes.usage(sandbox)).cpu_s > before

    try:
        await eventually(has_used_cpu, within_s=0.4)
    except AssertionError:
        return True
    return False


async def _says(room: MachineRoom, machine: MachineId) -> str:
    try:
        return (await room.exec(machine, "echo on")).stdout
    except OutliveError as error:
        return error.code


async def test_a_lease_of_which_the_watchdog_cannot_be_told_stops_the_machines_and_ends_nothing(
    tmp_path: Path,
) -> None:
    async with (
        open_machine_room(tmp_path) as room,
        room.node(lease_s=LEASE_S, beat_s=BEAT_S) as node,
        node.parts.sandboxes.guarded() as guard,
        anyio.create_task_group() as group,
    ):
        machine = await room.create()
        await group.start(keep_lease, node, guard, _record(node))
        await room.exec(machine.id, "nohup sh -c 'while :; do :; done' >/dev/null 2>&1 &")
        resident = node.residents.get(machine.id, machine.generation)
        in_the_way = tmp_path / "a" / "lease.new"
        in_the_way.mkdir()
        with anyio.fail_after(20):
            await eventually(lambda: not resident.has_lease, within_s=10)
        await eventually(lambda: _stands_still(node, resident.sandbox))
        with pytest.raises(UnavailableError, match="lost contact"):
            await room.exec(machine.id, "true")

        in_the_way.rmdir()
        await eventually(lambda: resident.has_lease)
        assert await _says(room, machine.id) == "on\n"
        assert not await _stands_still(node, resident.sandbox)
        group.cancel_scope.cancel()


async def test_a_lease_is_kept_though_no_descriptor_is_left_for_a_while(tmp_path: Path) -> None:
    async with (
        open_machine_room(tmp_path) as room,
        room.node(lease_s=30.0, beat_s=BEAT_S) as node,
        node.parts.sandboxes.guarded() as guard,
        anyio.create_task_group() as group,
    ):
        machine = await room.create()
        await group.start(keep_lease, node, guard, _record(node))
        word = tmp_path / "a" / "lease"

        def untold() -> bool:
            return guard.now() - float(told.split()[0]) + 30.0 > 5 * BEAT_S

        told = word.read_text()
        with no_descriptors_left():
            await eventually(untold)
        assert word.read_text() == told, "nothing could be written"
        await eventually(lambda: word.read_text() != told)
        assert await _says(room, machine.id) == "on\n"
        group.cancel_scope.cancel()
