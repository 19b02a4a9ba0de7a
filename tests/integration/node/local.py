"""Machines of processes and folders behind the node's real listeners, and the door that the API uses in front."""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from outlive.api.node import listen_for_node, serve_node
from outlive.base import MachineId, PrincipalId, SystemClock, new_machine_id
from outlive.machine.backends.node_client import HttpDoor
from outlive.machine.backends.node_terminals import HttpTerminalDoor
from outlive.machine.backends.screens.ghostty import GhosttyScreens
from outlive.machine.backends.sqlite_egress import SqliteEgress
from outlive.machine.backends.sqlite_records import MIGRATIONS, sqlite_records
from outlive.machine.keeper import MachineKeeper
from outlive.machine.node_wire import NodeAddress
from outlive.machine.records import Records
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Machine
from outlive.machine.terminal.journal import Header, Record, encode_header, encode_many
from outlive.machine.terminal.records import TerminalRecords
from outlive.machine.terminal.segments import pack
from outlive.machine.terminal.status import Terminal
from outlive.storage.migrate import migrate_sqlite
from outlive.storage.objects import ObjectStore, open_objects
from outlive.storage.sqlite import SqliteDatabase, open_sqlite
from outlive.testing.local_machines import LocalMachines
from outlive.testing.local_pty import Upload
from outlive.testing.local_terminals import LocalTerminals, open_local_terminals

TOKEN = "token-of-the-nodes"
OWNER = PrincipalId("prin_" + "1" * 32)


@dataclass(frozen=True)
class LocalNode:
    records: Records
    machines: LocalMachines
    keeper: MachineKeeper
    door: HttpDoor
    address: NodeAddress
    terminals: LocalTerminals
    terminal_door: HttpTerminalDoor
    objects: ObjectStore
    egress: SqliteEgress

    async def create(self, machine: MachineId | None = None) -> Machine:
        return await self.keeper.create(
            machine or new_machine_id(), owner=OWNER, environment="default", spec=MachineSpec()
        )


@asynccontextmanager
async def open_local_node(home: Path, database: SqliteDatabase, token: str = TOKEN) -> AsyncIterator[LocalNode]:
    clock = SystemClock()
    await migrate_sqlite(database, (MIGRATIONS,))
    records = sqlite_records(database, clock)
    address = NodeAddress(path=str(home / "node.sock"))
    machines = LocalMachines(records, clock, home / "machines", str(address))
    await machines.renew()
    listeners = listen_for_node(address)
    door = HttpDoor(records.machines, records.nodes, token, clock)
    keeper = MachineKeeper(records.machines, machines, clock)
    objects = open_objects(str(home / "objects"))
    async with (
        open_local_terminals(
            records.machines,
            records.terminals,
            _uploader(objects, records.terminals),
            GhosttyScreens(),
            clock,
            home / "machines",
        ) as terminals,
        anyio.create_task_group() as group,
    ):
        machines.terminals = terminals
        await group.start(serve_local, machines, listeners, terminals)
        try:
            calls = HttpTerminalDoor(door.calls)
            yield LocalNode(records, machines, keeper, door, address, terminals, calls, objects, SqliteEgress(database))
        finally:
            await door.aclose()
            machines.close()
            group.cancel_scope.cancel()
    listeners.close()


async def serve_local(
    machines: LocalMachines, listeners: object, terminals: LocalTerminals, *, task_status: object
) -> None:
    await serve_node(machines, listeners, TOKEN, terminals=terminals, task_status=task_status)  # type: ignore[arg-type]


def _uploader(objects: ObjectStore, records: TerminalRecords) -> Upload:
    """Segments as a node makes them."""

    async def upload(terminal: Terminal, happened: Sequence[Record]) -> None:
        header = Header(
            terminal=terminal.id,
            n=terminal.segments + 1,
            offset=terminal.recorded_to,
            input_offset=0,
            generation=1,
            at=happened[0].at,
        )
        packed = pack(encode_header(header) + encode_many(happened))
        await objects.put_new(packed.segment.key, packed.content)
        await records.add_segment(packed.segment, recorded_to=packed.segment.end)

    return upload


@asynccontextmanager
async def open_local(home: Path, token: str = TOKEN) -> AsyncIterator[LocalNode]:
    async with open_sqlite(home / "outlive.db") as database, open_local_node(home, database, token) as node:
        yield node


def trusting(cert: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cert))
