"""Letting go a machine that was made for a conversation and that its log never named.

Rule: only while it is young and nobody has worked in it: no command, no terminal. Any other stays, and its node lets it
      sleep: what somebody did in it is not ours to throw away. Files that were copied in leave no trace to go by, hence
      the age; it counts from the birth of a machine, so one out of a warm pool mostly stays.
"""

from datetime import timedelta

import anyio

from outlive.base import Clock, NotFoundError
from outlive.machine.keeper import MachineKeeper
from outlive.machine.records import Records
from outlive.machine.status import Machine

YOUNG = timedelta(minutes=5)
_WITHIN_S = 10.0  # that anybody waits for it: it is written that it shall go, and it goes without us


async def let_go_unnamed(keeper: MachineKeeper, records: Records, clock: Clock, machine: Machine) -> bool:
    """Whether it goes."""
    if machine.is_gone or clock.now() - machine.created_at > YOUNG:
        return False
    if await records.terminals.list(machine.id) or await records.effects.mark(machine.id) > 0:
        return False
    with anyio.move_on_after(_WITHIN_S):
        try:
            await keeper.do(machine.id, "delete")
        except NotFoundError:  # somebody else does the same
            return False
    return True
