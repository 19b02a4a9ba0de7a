"""From settings to the machines behind an API: keeper, caller and the door to the nodes.

Temporal may be away when an API starts, and come later: it is looked for when somebody first asks for something that
needs it, and until then everything else works.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from outlive.api import MachineParts
from outlive.base import InvalidError, MachineId
from outlive.machine.backends.node_client import HttpDoor
from outlive.machine.caller import MachineCaller
from outlive.machine.keeper import MachineKeeper, Settler
from outlive.machine.records import Records
from outlive.wiring.build import Parts, open_object_store
from outlive.wiring.machines import make_settler
from outlive.wiring.node_token import ensure_node_token
from outlive.wiring.settings import Settings
from outlive.wiring.temporal import connect_temporal

_CONNECT_WITHIN_S = 10.0


class LateSettler:
    """A settler that connects when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._settler: Settler | None = None
        self._connecting = anyio.Lock()

    async def settle(self, machine: MachineId) -> None:
        async with self._connecting:
            if self._settler is None:
                self._settler = make_settler(await connect_temporal(self._settings, _CONNECT_WITHIN_S))
        await self._settler.settle(machine)


@asynccontextmanager
async def open_machine_parts(settings: Settings, parts: Parts) -> AsyncIterator[MachineParts]:
    token = await anyio.to_thread.run_sync(ensure_node_token, settings)
    tls = await anyio.to_thread.run_sync(_tls, settings)
    objects = await open_object_store(settings)
    records = Records(parts.machines, parts.effects, parts.nodes, parts.checkpoints, parts.environments)
    keeper = MachineKeeper(parts.machines, LateSettler(settings), parts.clock)
    door = HttpDoor(parts.machines, parts.nodes, token, parts.clock, tls)
    try:
        yield MachineParts(keeper, MachineCaller(keeper, parts.effects, door, parts.clock), records, objects.get)
    finally:
        await door.aclose()


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """Whom we take for a node. None: only those on this host are asked, or the host's own authorities count."""
    authority = settings.node.tls_ca
    if authority is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        raise InvalidError("node.tls_ca", f"{str(authority)!r} (node.tls_ca) cannot be used: {error}.") from None
