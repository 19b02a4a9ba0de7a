"""What of a machine's own history is said in the log of its conversation. Pure.

What was mended without anybody is said a second time as what it is for the turn: `turn.recovered`. Nothing here depends
on who notices, so whoever comes second says the same.
"""

from outlive.base import MachineId
from outlive.conversation.events import (
    EventData,
    MachineHibernated,
    MachineLost,
    MachineRebooted,
    MachineRolledBack,
    MachineWoken,
    TurnRecovered,
)
from outlive.machine.status import MachineEvent


def notice_of(machine: MachineId, event: MachineEvent) -> tuple[EventData, ...]:
    """One line of the history; nothing for what does not concern a conversation."""
    match event.kind:
        case "hibernated":
            return (MachineHibernated(machine=machine),)
        case "woken":
            return (MachineWoken(machine=machine),)
        case "rebooted":
            reason = "The machine's memory was gone: it was booted again on its files."
            return (MachineRebooted(machine=machine), TurnRecovered(what="machine_rebooted", reason=reason))
        case "rolled_back":
            checkpoint, effects = str(event.data.get("checkpoint")), [str(each) for each in event.data["effects"]]
            reason = f"The machine was restored from {checkpoint}, which is older than {len(effects)} of its effects."
            return (
                MachineRolledBack(machine=machine, checkpoint=checkpoint, effects=effects),
                TurnRecovered(what="machine_rolled_back", reason=reason),
            )
        case "lost":
            reason = str(event.data.get("reason") or "It is gone.")
            return (MachineLost(machine=machine), TurnRecovered(what="machine_lost", reason=reason))
        case _:
            return ()
