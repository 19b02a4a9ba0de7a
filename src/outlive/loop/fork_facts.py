"""Which checkpoint a fork's machine is made from, and what lies between it and the event it was forked at. Pure.

Effects count, not clocks: a checkpoint holds the effects of its machine up to a number (`effects_mark`), and a log says
which effects its tool steps had. So it is exact what a copy lacks, and what it has too much.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outlive.base import EffectId, MachineId
from outlive.conversation.events import Event
from outlive.conversation.upcast import upcast
from outlive.machine.status import Checkpoint, MachineEvent


@dataclass(slots=True)
class Told:
    """What a log says of its machine, up to one event. `effects`: of all tool steps, in order; those of this machine
    are in its journal (the first one is requested before there is a machine)."""

    machine: MachineId | None = None
    effects: dict[EffectId, None] = field(default_factory=dict)
    gone: set[EffectId] = field(default_factory=set)  # said to be rolled back

    def take(self, event: Event) -> None:
        match event.type:
            case "conversation.created":  # a fork begins without the machine of its parent
                self.machine = None
            case "machine.attached":
                self.machine = MachineId(upcast(event).data["machine"])
            case "machine.rolled_back":
                self.gone |= {EffectId(each) for each in upcast(event).data["effects"]}
            case "tool.requested":
                self.effects[EffectId(upcast(event).data["effect"])] = None  # again for each attempt of a step
            case _:
                pass


def nearest(checkpoints: Iterable[Checkpoint], *, first: int, last: int) -> Checkpoint | None:
    """The newest that holds nothing after effect number `last`; else the oldest of those that do, which is told. One
    that lacks effect number `first`, without which the machine is not the conversation's (its repository), is none."""
    usable = sorted(
        (each for each in checkpoints if each.state == "ready" and each.effects_mark >= first),
        key=lambda each: (each.effects_mark, each.created_at),
    )
    before = [each for each in usable if each.effects_mark <= last]
    if before:
        return before[-1]
    return usable[0] if usable else None


def rolled_back_before(history: Sequence[MachineEvent], checkpoint: str) -> set[EffectId]:
    """What a machine did not hold any more when this checkpoint of it was made, though its number is in the mark."""
    gone: set[EffectId] = set()
    for event in history:
        if event.kind == "rolled_back":
            gone |= {EffectId(str(each)) for each in event.data["effects"]}
        if event.kind == "checkpointed" and event.data.get("checkpoint") == checkpoint:
            break
    return gone
