"""The machine layer put together in one process: real sandboxes, real records, one or more nodes. The settler runs the
same table and the same steps as the workflow, without Temporal in between; the stack's tests have that."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from leaks import assert_nothing_left, leftovers, nothing_is_left
from outlive.base import MachineId, NodeId, OutliveError, SystemClock, new_effect_id, new_machine_id, new_principal_id
from outlive.governance.egress_records import EgressDecision
from outlive.governance.egress_shared import open_shared_egress
from outlive.machine import lifecycle
from outlive.machine.activities import forget_machine, make_plan
from outlive.machine.backends.bases.provider import CachedBases
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.machine.backends.sqlite_records import MIGRATIONS, sqlite_records
from outlive.machine.checkpoint import CheckpointStore
from outlive.machine.door import ExecRequest
from outlive.machine.keeper import MachineKeeper
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.idle import IdlePolicy
from outlive.machine.node.node import Node, open_node
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.strays import look_for_strays
from outlive.machine.records import MachineFilter, Records
from outlive.machine.spec import Limits, MachineSpec
from outlive.machine.status import Effect, Machine
from outlive.machine.status import Node as NodeRecord
from outlive.storage import migrate_sqlite, open_sqlite
from outlive.storage.objects import ObjectStore, open_objects
from outlive.wiring.node import cgroup_name, read_host_facts
from outlive.wiring.screens import open_screens
from outlive.wiring.settings import Settings

SMALL = MachineSpec(base="host", limits=Limits(memory_mib=512, disk_mib=256))
_CLOCK = SystemClock()
_ROUNDS = 4  # each of which looks at some of what was left


@dataclass
class DirectSettler:
    """Does what the workflow does, in the process of the test."""

    records: Records
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    locks: dict[MachineId, anyio.Lock] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    async def settle(self, machine: MachineId) -> None:
        async with self.locks.setdefault(machine, anyio.Lock()):
            for _ in range(10):
                found = await self.records.machines.get(machine)
                is_gone = found.node is not None and found.node not in self.nodes
                step = lifecycle.next_step(found, is_node_gone=is_gone)
                if step is None:
                    return
                try:
                    await self._do(found, step)
                except OutliveError as error:
                    self.failed.append(f"{step}: {error.message}")
                    await self._give_up(machine, step, error.message)
                    return

    async def _give_up(self, machine: MachineId, step: lifecycle.Step, reason: str) -> None:
        now = _CLOCK.now()
        await self.records.machines.change(machine, lambda found: lifecycle.give_up(found, step, now, reason=reason))

    async def _do(self, found: Machine, step: lifecycle.Step) -> None:
        plan = make_plan(found.node, step)
        if step == "declare_lost":
            assert found.node is not None
            node = found.node
            await self.records.machines.change(
                found.id, lambda record: lifecycle.declare_lost(record, node, _CLOCK.now(), reason="its node is gone")
            )
        elif step == "remove" and found.node is None:
            records = self.records
            await forget_machine(records.machines, records.effects, records.checkpoints, found.id, _CLOCK)
        else:
            house = next(iter(self.nodes.values())) if plan.is_placed else self.nodes[found.node]  # type: ignore[index]
            await getattr(house, step)(found.id)


@dataclass
class MachineRoom:
    records: Records
    objects: ObjectStore
    settler: DirectSettler
    keeper: MachineKeeper
    decisions: list[EgressDecision]
    path: Path

    async def create(self, spec: MachineSpec = SMALL, machine: MachineId | None = None) -> Machine:
        return await self.keeper.create(
            machine or new_machine_id(), owner=new_principal_id(), environment="test", spec=spec
        )

    def node_of(self, machine: Machine) -> Node:
        assert machine.node is not None
        return self.settler.nodes[machine.node]

    async def exec(self, machine: MachineId, command: str, **fields: object) -> Effect:
        """As the API does it: wake it, then ask its node."""
        found = await self.keeper.ensure_awake(machine)
        fields.setdefault("effect_id", new_effect_id())
        request = ExecRequest.model_validate({"command": command, **fields})
        return await NodeDoor(self.node_of(found)).exec(found.id, found.generation, request)

    @asynccontextmanager
    async def node(self, name: str = "a", **fields: object) -> AsyncIterator[Node]:
        """A node of this room; leaving it leaves its sandboxes, as the end of a process does."""
        path = self.path / name
        path.mkdir(exist_ok=True)
        with open_shared_egress(connections=2048, machines=8) as egress:
            parts = NodeParts(
                node=_node_id(name),
                path=path,
                machines=self.records.machines,
                effects=self.records.effects,
                nodes=self.records.nodes,
                checkpoints=self.records.checkpoints,
                store=CheckpointStore(self.objects),
                objects=self.objects,
                sandboxes=open_gvisor_sandboxes(path, self.cgroup(name)),
                bases=CachedBases(Settings().machines.cache / "bases", Settings().machines.cache / "runtimes"),
                settler=self.settler,
                egress_record=self._record,
                egress=egress,
                host=read_host_facts("runsc"),
                clock=_CLOCK,
                terminals=self.records.terminals,
                screens=open_screens(),
                idle=IdlePolicy(None, None),
                checkpoint_every_s=None,
            )
            parts = parts._replace(**fields)  # type: ignore[arg-type]
            async with open_node(parts, is_adopting=False) as node:
                now = _CLOCK.now()
                record = NodeRecord(id=parts.node, address="unix:/nowhere", lease_until=now, started_at=now)
                await self.records.nodes.renew(record, lease_s=3600)
                self.settler.nodes[parts.node] = node
                try:
                    await node.adoption.adopt()
                    yield node
                finally:
                    del self.settler.nodes[parts.node]

    async def _record(self, decision: EgressDecision) -> None:
        self.decisions.append(decision)

    def cgroup(self, name: str) -> str:
        return cgroup_name(self.path / name)

    async def empty(self) -> None:
        """End every sandbox of every node, and see that nothing is left but what they keep of those that sleep."""
        for name in self._nodes():
            sandboxes = open_gvisor_sandboxes(self.path / name, self.cgroup(name))
            for sandbox in await sandboxes.find_all():
                await sandboxes.destroy(sandbox)
            await nothing_is_left(self.path / name, self.cgroup(name), are_asleep=True)

    async def delete_all(self) -> None:
        """Every machine, as somebody does it who knows nothing of their nodes; and see that these keep nothing."""
        records = self.records
        for machine in await records.machines.list(MachineFilter(is_warm=None), limit=10_000):
            await forget_machine(records.machines, records.effects, records.checkpoints, machine.id, _CLOCK)
        for name in self._nodes():
            if leftovers(self.path / name, self.cgroup(name)):
                async with self.node(name) as node:
                    for _ in range(_ROUNDS):
                        await look_for_strays(node)
                assert_nothing_left(self.path / name, self.cgroup(name))

    def _nodes(self) -> list[str]:
        return [path.name for path in self.path.iterdir() if (path / "machines").is_dir()]


def _node_id(name: str) -> NodeId:
    return NodeId(f"node_{name.encode().hex():0>32}")


@asynccontextmanager
async def open_machine_room(home: Path) -> AsyncIterator[MachineRoom]:
    """Records in SQLite and objects on disk under `home`; nodes are opened in it."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_sqlite(home / "outlive.db"))
        await migrate_sqlite(database, [MIGRATIONS])
        records = sqlite_records(database, _CLOCK)
        settler = DirectSettler(records)
        keeper = MachineKeeper(records.machines, settler, _CLOCK)
        room = MachineRoom(records, open_objects(str(home / "objects")), settler, keeper, [], home)
        try:
            yield room
        finally:
            with anyio.CancelScope(shield=True):
                await room.empty()
                await room.delete_all()
