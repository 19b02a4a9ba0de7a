"""From settings to the machines behind an API: keeper, caller and the door to the nodes; and their terminals.

Temporal may be away when an API starts, and come later: it is looked for when somebody first asks for something that
needs it, and until then everything else works.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import anyio
import anyio.to_thread
from temporalio.client import Client

from outlive.api import MachineParts, TerminalParts
from outlive.base import MachineId
from outlive.machine.caller import MachineCaller
from outlive.machine.environments import Environments
from outlive.machine.keeper import MachineKeeper
from outlive.machine.terminal.recording import Recordings
from outlive.machine.terminal.screen import Screen
from outlive.wiring.build import Parts, machine_records, open_object_store
from outlive.wiring.machines import make_builder, make_settler, make_terminal_door, open_node_door
from outlive.wiring.screens import open_screens
from outlive.wiring.settings import Settings
from outlive.wiring.temporal import connect_temporal

_CONNECT_WITHIN_S = 10.0


class LateTemporal:
    """A settler and a builder that connect when they are first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._connecting = anyio.Lock()

    async def settle(self, machine: MachineId) -> None:
        await make_settler(await self.connected()).settle(machine)

    async def build(self, digest: str, tries: int) -> None:
        await make_builder(await self.connected()).build(digest, tries)

    async def connected(self) -> Client:
        async with self._connecting:
            if self._client is None:
                self._client = await connect_temporal(self._settings, _CONNECT_WITHIN_S)
            return self._client


class LateScreens:
    """Loads its engine when the first screen is asked for: an API starts sooner, and few ever need one."""

    def __init__(self) -> None:
        self._opened = cache(open_screens)

    @property
    def name(self) -> str:
        return self._opened().name

    def new(self, cols: int, rows: int) -> Screen:
        return self._opened().new(cols, rows)


@asynccontextmanager
async def open_machine_parts(settings: Settings, parts: Parts, temporal: LateTemporal) -> AsyncIterator[MachineParts]:
    objects = await open_object_store(settings)
    records = machine_records(parts)
    keeper = MachineKeeper(parts.machines, temporal, parts.clock)
    async with open_node_door(settings, parts.machines, parts.nodes, parts.clock) as door:
        yield MachineParts(
            keeper=keeper,
            caller=MachineCaller(keeper, parts.effects, door, parts.clock),
            records=records,
            environments=Environments(
                parts.environments,
                keeper,
                temporal,
                objects.get,
                parts.clock,
                base_paths=settings.machines.base_paths,
            ),
            read_output=objects.get,
            egress=parts.egress,
            terminals=TerminalParts(
                records=parts.terminals,
                door=make_terminal_door(door),
                recordings=Recordings(objects, parts.terminals),
                screens=LateScreens(),
            ),
        )
