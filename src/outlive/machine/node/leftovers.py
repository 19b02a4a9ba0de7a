"""What machines that are not here any more have left on this host: long outputs of their commands, journals of their
terminals. Looked for as long as the node runs.

A machine that is deleted while it is up takes them along (`Node.remove`). One that sleeps, has moved or has died is
deleted by somebody who knows nothing of this host, so each node looks by itself.

Rule 1: the records say what is over. What a machine that sleeps has printed so far, and the journals of its terminals,
        stay until it is up again.
Rule 2: what somebody here has in hand is left to him: a step its machine, a host its terminal, a run its output.
Rule 3: a round looks at a bounded number of folders. The next one goes on where it ended.
"""

import logging
import shutil
from collections.abc import Sequence
from functools import partial

import anyio.to_thread

from outlive.base import EffectId, MachineId, NotFoundError, OutliveError, TerminalId, is_id
from outlive.machine.node.housing import Housing
from outlive.machine.node.outputs import spool_of

_AT_ONCE = 64

_log = logging.getLogger(__name__)


class Leftovers:
    def __init__(self, housing: Housing) -> None:
        self._housing = housing
        self._parts = housing.parts
        self._last_machine = ""
        self._last_terminal = ""

    async def look(self) -> None:
        """One round."""
        machines = next_after(self._last_machine, self._with_outputs())
        self._last_machine = machines[-1] if machines else ""
        for machine in machines:
            try:
                await self._look_at_outputs(MachineId(machine))
            except (OutliveError, OSError) as error:
                _log.info("outputs of machine %s stay: %s", machine, error)
        terminals = next_after(self._last_terminal, self._housing.terminals.left_behind())
        self._last_terminal = terminals[-1] if terminals else ""
        for terminal in terminals:
            await self._housing.terminals.sweep_one(TerminalId(terminal), self._housing.is_in_hand)

    def _with_outputs(self) -> list[str]:
        parent = spool_of(self._parts.path, MachineId("any")).parent
        return [each.name for each in parent.iterdir() if is_id(each.name, "mach")] if parent.is_dir() else []

    async def _look_at_outputs(self, machine: MachineId) -> None:
        folder = spool_of(self._parts.path, machine)
        if await self._is_deleted(machine):
            if not self._housing.is_in_hand(machine):  # else who deletes it does this
                await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))
            return
        for path in list(folder.iterdir()):
            if await self._is_over(machine, EffectId(path.stem)):
                path.unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()

    async def _is_over(self, machine: MachineId, effect: EffectId) -> bool:
        """And nobody here is about to read what it has printed."""
        found = await self._parts.effects.find(machine, effect)
        carriers = (self._housing.runs, self._housing.terminals.shell_runs)
        is_carried = any(each.find(machine, effect) is not None for each in carriers)
        return found is not None and found.is_over and not is_carried

    async def _is_deleted(self, machine: MachineId) -> bool:
        try:
            return (await self._parts.machines.get(machine)).state == "deleted"
        except NotFoundError:
            return True


def next_after(last: str, names: Sequence[str], at_once: int = _AT_ONCE) -> list[str]:
    """Those whose turn it is: the next after `last` in their order, or the first again when all had their turn."""
    ordered = sorted(names)
    return [name for name in ordered if name > last][:at_once] or ordered[:at_once]
