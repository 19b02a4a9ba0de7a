"""A host that was stopped as a whole, its clocks with it, and goes on after its machines came up elsewhere."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually
from machine_rooms import MachineRoom, open_machine_room
from outlive.machine.node.node import Node
from outlive.machine.node.strays import look_for_strays
from outlive.machine.node.watch import keep_lease
from outlive.machine.records import Nodes, Renewal
from outlive.machine.sandbox import Guard
from outlive.machine.status import Machine
from outlive.machine.status import Node as NodeRecord

pytestmark = pytest.mark.anyio

_LEASE_S = 600.0  # by the host's own clock it is never over in this test


class StoppedHost:
    """As the node sees it: while the host is stopped it does nothing, and no time passes."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._running = anyio.Event()
        self._running.set()
        self._guard: Guard | None = None
        self._stopped_at: float | None = None
        self._missed_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)

    def watched_by(self, guard: Guard) -> Guard:
        self._guard = guard
        return self

    def stop(self) -> None:
        self._stopped_at, self._running = self.now(), anyio.Event()

    def go_on(self) -> None:
        assert self._guard is not None
        assert self._stopped_at is not None
        self._missed_s, self._stopped_at = self._guard.now() - self._stopped_at, None
        self._running.set()

    def now(self) -> float:
        assert self._guard is not None
        return self._guard.now() - self._missed_s if self._stopped_at is None else self._stopped_at

    async def keep(self, until: float, *, may_run: bool) -> None:
        assert self._guard is not None
        await self._guard.keep(until + self._missed_s, may_run=may_run)

    async def renew(self, node: NodeRecord, *, lease_s: float) -> Renewal:
        await self._running.wait()
        return await self._nodes.renew(node, lease_s=lease_s)


async def _taken_by_another(room: MachineRoom, node: Node, machine: Machine) -> Machine:
    """Its node's lease is over by the clock of the database, and another node takes the machine."""
    await room.records.nodes.renew(await room.records.nodes.get(node.parts.node), lease_s=-60)
    cut_off = room.settler.nodes.pop(node.parts.node)
    try:
        async with room.node("b"):
            await room.settler.settle(machine.id)
            return await room.keeper.get(machine.id)
    finally:
        room.settler.nodes[node.parts.node] = cut_off


async def _is_empty(node: Node) -> bool:
    return not await node.parts.sandboxes.find_all() and not list(node.residents)


async def test_a_host_whose_clocks_stood_still_lets_go_of_what_came_up_elsewhere(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        host = StoppedHost(room.records.nodes)
        async with room.node("a", nodes=host, lease_s=_LEASE_S, beat_s=0.1) as node:
            async with node.parts.sandboxes.guarded() as guard, anyio.create_task_group() as group:
                record = await room.records.nodes.get(node.parts.node)
                await group.start(keep_lease, node, host.watched_by(guard), record)
                machine = await room.create()
                await room.keeper.checkpoint(machine.id)
                host.stop()
                moved = await _taken_by_another(room, node, machine)
                assert (moved.state, moved.generation) == ("running", 3)  # lost is a generation too
                assert not await _is_empty(node)
                host.go_on()
                await eventually(lambda: _is_empty(node), 60)
                group.cancel_scope.cancel()
            assert (await room.keeper.get(machine.id)).generation == moved.generation


async def test_a_node_that_holds_what_is_anothers_by_now_finds_it(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node("a") as node:
        machine = await room.create()
        await room.keeper.checkpoint(machine.id)
        await _taken_by_another(room, node, machine)
        assert not await _is_empty(node)
        await look_for_strays(node)
        await eventually(lambda: _is_empty(node), 60)
