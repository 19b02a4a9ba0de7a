"""The port to what SQL knows about terminals and where their recordings are. No I/O here.

Rule 1: a record is changed by handing in a pure function, run inside one transaction on the row as it is then.
Rule 2: with a holder (node, generation) a change is refused (`machine.fenced`) unless the machine's record names it at
        that moment: a node that has lost the machine neither hands out offsets nor leases, nor adds to the recording.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from outlive.base import MachineId, NodeId, TerminalId
from outlive.machine.terminal.status import Segment, Terminal

DecideTerminal = Callable[[Terminal], Terminal]


class TerminalRecords(Protocol):
    async def create(self, terminal: Terminal, *, holder: tuple[NodeId, int] | None = None) -> Terminal:
        """Put a new record; one with this id that is there already is returned as it is. `terminal.name_taken`
        (conflict) if the machine has another one of this name."""
        ...

    async def ensure(self, terminal: Terminal, *, holder: tuple[NodeId, int] | None = None) -> Terminal:
        """The record of this name in this machine: the one that is there, or else this one."""
        ...

    async def get(self, terminal: TerminalId) -> Terminal:
        """`terminal.unknown` (not_found) if there is none. Those that have ended are still told of."""
        ...

    async def list(self, machine: MachineId, *, include_ended: bool = True) -> Sequence[Terminal]:
        """In the order of their ids: the oldest first."""
        ...

    async def change(
        self, terminal: TerminalId, decide: DecideTerminal, *, holder: tuple[NodeId, int] | None = None
    ) -> Terminal:
        """Run `decide` on the record inside one transaction, put what it returns, and return what is there then.
        `decide` is pure, may be run more than once, and refuses by raising. `revision` grows by one with every real
        change; a new moment alone is none. What the terminal is (id, machine, name ...) and how many segments it has
        is not changed by this."""
        ...

    async def close_all(
        self, machine: MachineId, *, at: datetime, reason: str, holder: tuple[NodeId, int] | None = None
    ) -> Sequence[Terminal]:
        """Those that are open are `closed` from now on, held by nobody. Returns them. A machine that becomes `deleted`
        closes its terminals in the same transaction, without being asked."""
        ...

    async def add_segment(
        self,
        segment: Segment,
        *,
        recorded_to: int,
        reserved_to: int | None = None,
        holder: tuple[NodeId, int] | None = None,
    ) -> Segment:
        """The next piece of the recording is in the object store. One with this number that is there already is
        returned as it is, and nothing changes. `terminal.segment_hole` (conflict) if the one before it is missing.
        `recorded_to` never goes back; `reserved_to`, if given, is set as it is."""
        ...

    async def segments(self, terminal: TerminalId, *, start: int = 0, after: int = 0, limit: int) -> Sequence[Segment]:
        """Those that reach beyond the offset `start`, in order, with a number above `after`. One that holds no output
        (only what was typed) counts where it stands."""
        ...
