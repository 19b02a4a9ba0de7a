"""From settings to the parts of the machine layer that an API or a worker has."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio.to_thread
from temporalio.client import Client

from outlive.base import Clock, InvalidError
from outlive.machine.backends.node_client import HttpDoor
from outlive.machine.backends.node_terminals import HttpTerminalDoor
from outlive.machine.backends.temporal_builder import TemporalBuilder
from outlive.machine.backends.temporal_settler import TemporalSettler
from outlive.machine.building import EnvironmentBuilding
from outlive.machine.caller import MachineCaller
from outlive.machine.environments import Builder
from outlive.machine.keeper import MachineKeeper, Settler
from outlive.machine.pool import WarmPool
from outlive.machine.records import MachineRecords, Nodes
from outlive.machine.terminal.door import TerminalDoor
from outlive.wiring.build import Parts, Stores, machine_records, open_object_store
from outlive.wiring.node_token import ensure_node_token
from outlive.wiring.settings import Settings


def make_builder(client: Client) -> Builder:
    return TemporalBuilder(client)


def make_settler(client: Client) -> Settler:
    return TemporalSettler(client)


@asynccontextmanager
async def open_node_door(
    settings: Settings, machines: MachineRecords, nodes: Nodes, clock: Clock
) -> AsyncIterator[HttpDoor]:
    """The door to machines on whatever node they are."""
    token = await anyio.to_thread.run_sync(ensure_node_token, settings)
    door = HttpDoor(machines, nodes, token, clock, await anyio.to_thread.run_sync(_tls, settings))
    try:
        yield door
    finally:
        await door.aclose()


def make_terminal_door(door: HttpDoor) -> TerminalDoor:
    """The door to the terminals of the same machines, over the same connections."""
    return HttpTerminalDoor(door.calls)


class EnvironmentParts(NamedTuple):
    """What a worker does for environments."""

    building: EnvironmentBuilding
    pool: WarmPool


@asynccontextmanager
async def open_environment_parts(
    settings: Settings, stores: Stores | Parts, client: Client, clock: Clock
) -> AsyncIterator[EnvironmentParts]:
    records = machine_records(stores)
    settler = make_settler(client)
    keeper = MachineKeeper(records.machines, settler, clock)
    objects = await open_object_store(settings)
    async with open_node_door(settings, records.machines, records.nodes, clock) as door:
        caller = MachineCaller(keeper, records.effects, door, clock)
        yield EnvironmentParts(
            EnvironmentBuilding(records, keeper, caller, objects, clock),
            WarmPool(records, keeper, settler, make_builder(client), clock),
        )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """Whom we take for a node. None: only those on this host are asked, or the host's own authorities count."""
    authority = settings.node.tls_ca
    if authority is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        raise InvalidError("node.tls_ca", f"{str(authority)!r} (node.tls_ca) cannot be used: {error}.") from None
