"""What all parts of a node share: who is up here, what runs in them, and whose step it is.

Rule: one step at a time per machine (`locks`). Whoever makes or ends a resident holds its lock.
"""

import logging
from collections import defaultdict
from contextlib import AsyncExitStack

import anyio
import anyio.abc

from outlive.base import MachineId, OutliveError
from outlive.machine.base import Base
from outlive.machine.guest_link import open_door
from outlive.machine.node import up
from outlive.machine.node.egress import open_egress
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.resident import Resident, Residents
from outlive.machine.node.runs import Runs
from outlive.machine.node.saving import Saving
from outlive.machine.node.terminals.hosts import TerminalHosts
from outlive.machine.sandbox import Sandbox
from outlive.machine.status import Machine

_log = logging.getLogger(__name__)


class Housing:
    def __init__(self, parts: NodeParts, tasks: anyio.abc.TaskGroup) -> None:
        self.parts = parts
        self.tasks = tasks
        self.residents = Residents()
        self.runs = Runs(parts, tasks)
        self.terminals = TerminalHosts(parts, tasks)
        self.saving = Saving(parts, self.terminals)
        self.locks: defaultdict[MachineId, anyio.Lock] = defaultdict(anyio.Lock)
        self._settling: set[MachineId] = set()

    def is_in_hand(self, machine: MachineId) -> bool:
        """Whether a step works on it, or it is up here."""
        is_taken = machine in self.locks and self.locks[machine].locked()
        return is_taken or self.residents.find(machine) is not None

    async def house(self, record: Machine, sandbox: Sandbox, base: Base) -> Resident:
        resident = await self.tasks.start(self._host, record, sandbox, base)
        assert isinstance(resident, Resident)
        return resident

    async def _host(
        self, record: Machine, sandbox: Sandbox, base: Base, *, task_status: anyio.abc.TaskStatus[Resident]
    ) -> None:
        """Keep the sockets of a machine open until it ends."""
        parts = self.parts
        async with AsyncExitStack() as stack:
            door = await stack.enter_async_context(open_door(sandbox.host_path, up.welcome_of(record, base)))
            resident = Resident(record, sandbox, door, parts.sandboxes, parts.clock)
            await stack.enter_async_context(open_egress(parts, record, sandbox, after=resident.counted))
            task_status.started(resident)
            with resident.scope:
                await anyio.sleep_forever()

    def settle_soon(self, machine: MachineId) -> None:
        """Have done what its record asks for, in its own time."""
        if machine not in self._settling:
            self._settling.add(machine)
            self.tasks.start_soon(self._settle, machine)

    async def _settle(self, machine: MachineId) -> None:
        try:
            await self.parts.settler.settle(machine)
        except OutliveError as error:
            _log.warning("machine %s: %s", machine, error.message)
        finally:
            self._settling.discard(machine)
