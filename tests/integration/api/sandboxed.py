"""A running API in front of a real node with real sandboxes: the whole way of a request but Temporal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

from integration.api.machines import Unbuilt
from integration.api.stack import Api, open_parts, serve
from machine_rooms import SMALL, MachineRoom, open_machine_room
from outlive.api import MachineParts
from outlive.api.node import listen_for_node, serve_node
from outlive.base import SystemClock
from outlive.machine.backends.node_client import HttpDoor
from outlive.machine.backends.sqlite_egress import SqliteEgress
from outlive.machine.caller import MachineCaller
from outlive.machine.environments import Environments
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.node import Node
from outlive.machine.node_wire import NodeAddress
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Machine
from outlive.machine.status import Node as NodeRecord
from outlive.storage import open_sqlite

_TOKEN = "token-of-the-nodes"
_CLOCK = SystemClock()


@dataclass(frozen=True)
class SandboxedApi:
    api: Api
    room: MachineRoom

    @property
    def http(self) -> Any:
        return self.api.http

    async def create(self, spec: MachineSpec = SMALL) -> Machine:
        return await self.room.create(spec)


@asynccontextmanager
async def open_sandboxed_api(home: Path) -> AsyncIterator[SandboxedApi]:
    for name in ("api", "room"):
        (home / name).mkdir()
    async with (
        open_parts(home / "api") as parts,
        open_machine_room(home / "room") as room,
        open_sqlite(home / "room" / "outlive.db") as database,  # of the room
        room.node() as node,
        _reached(node, room, NodeAddress(path=str(home / "node.sock"))) as door,
    ):
        records = room.records
        environments = Environments(records.environments, room.keeper, Unbuilt(), room.objects.get, _CLOCK)
        caller = MachineCaller(room.keeper, records.effects, door, _CLOCK)
        machines = MachineParts(room.keeper, caller, records, environments, room.objects.get, SqliteEgress(database))
        async with serve(replace(parts, machines=machines)) as api:
            yield SandboxedApi(api, room)


@asynccontextmanager
async def _reached(node: Node, room: MachineRoom, address: NodeAddress) -> AsyncIterator[HttpDoor]:
    """The node listens, its record says where, and the API's door finds it there."""
    now = _CLOCK.now()
    record = NodeRecord(id=node.parts.node, address=str(address), lease_until=now, started_at=now)
    await room.records.nodes.renew(record, lease_s=3600)
    listeners = listen_for_node(address)
    door = HttpDoor(room.records.machines, room.records.nodes, _TOKEN, _CLOCK)

    async def listen(*, task_status: Any) -> None:
        await serve_node(NodeDoor(node), listeners, _TOKEN, task_status=task_status)

    async with anyio.create_task_group() as group:
        await group.start(listen)
        try:
            yield door
        finally:
            await door.aclose()
            group.cancel_scope.cancel()
    listeners.close()
