"""The record of a terminal, as its host holds it: what SQL said last, and the one way to change it.

Rule: only the node that the machine's record names changes it while the machine is up (the holder is checked inside the
transaction). So what is here is what SQL has, and who only looks asks nobody.
"""

from outlive.base import NodeId
from outlive.machine.terminal.records import DecideTerminal, TerminalRecords
from outlive.machine.terminal.status import Terminal


class Card:
    def __init__(self, terminal: Terminal, records: TerminalRecords, holder: tuple[NodeId, int]) -> None:
        self.terminal = terminal
        self.holder = holder
        self._records = records

    async def change(self, decide: DecideTerminal) -> Terminal:
        changed = await self._records.change(self.terminal.id, decide, holder=self.holder)
        # Two changes may be under way, and the answer to the first come last: a lease that was taken stays taken.
        if changed.revision >= self.terminal.revision:
            before, self.terminal = self.terminal, changed
            self.recorded(to=before.recorded_to, segments=max(before.segments, changed.segments))
        return self.terminal

    def recorded(self, *, to: int, segments: int) -> None:
        """What the index of the recording says by now."""
        self.terminal = self.terminal.model_copy(
            update={"recorded_to": max(self.terminal.recorded_to, to), "segments": segments}
        )
