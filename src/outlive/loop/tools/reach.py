"""A conversation's machine as a tool reaches it: commands under an effect's id, files, terminals."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from outlive.base import EffectId, MachineId, PrincipalId
from outlive.machine.caller import MachineCaller
from outlive.machine.door import MachineDoor
from outlive.machine.records import Records
from outlive.machine.status import Effect
from outlive.machine.terminal.door import TerminalDoor

T = TypeVar("T")

ReadOutput = Callable[[str], Awaitable[bytes]]
"""The whole of what a command printed, by the name that its effect has for it."""


@dataclass(frozen=True, slots=True)
class ToolMachine:
    """A machine that was up a moment ago, and the doors to it. Without `terminals`, commands are run by themselves."""

    id: MachineId
    owner: PrincipalId
    caller: MachineCaller
    terminals: TerminalDoor | None
    records: Records
    read_output: ReadOutput
    seat: str | None = None  # whose terminals are used: those of who has the machine, or a subagent's own

    async def use(self, call: Callable[[MachineDoor, int], Awaitable[T]]) -> T:
        """For what may be repeated: files, lists. Woken if it sleeps meanwhile."""
        return await self.caller.use(self.id, lambda generation: call(self.caller.door, generation))

    async def find(self, effect: EffectId) -> Effect | None:
        """What the journal has under this id."""
        return await self.records.effects.find(self.id, effect)
