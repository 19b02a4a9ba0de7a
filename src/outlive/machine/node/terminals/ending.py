"""How a terminal ends, and how that is said: in its record, in its journal, to those who watch. Pure."""

from datetime import datetime
from typing import Literal, NamedTuple

from outlive.machine.terminal import epochs, frames
from outlive.machine.terminal.frames import Channel, Frame
from outlive.machine.terminal.journal import Mark
from outlive.machine.terminal.status import Terminal


class How(NamedTuple):
    state: Literal["exited", "closed", "lost"]
    code: int | None = None
    signal: int | None = None
    reason: str | None = None

    def mark(self, at: datetime, offset: int) -> Mark:
        if self.state == "exited":
            return Mark(at, offset, "exit", {"exit": self.code, "signal": self.signal})
        return Mark(at, offset, self.state, self.reason)


def ended(terminal: Terminal, how: How, end: int, title: str, now: datetime) -> Terminal:
    """The record of one that has ended so. The first end counts."""
    if not terminal.is_open:
        return terminal
    return epochs.settle(terminal, end).model_copy(
        update={
            "state": how.state,
            "exit_code": how.code,
            "signal": how.signal,
            "reason": how.reason,
            "lease": None,
            "title": title,
            "changed_at": now,
            "ended_at": now,
        }
    )


def last_frames(terminal: Terminal) -> tuple[Frame, ...]:
    """The last words about one that has ended."""
    said = Frame(Channel.STATUS, frames.status_exit(terminal.exit_code, terminal.signal))
    if terminal.state == "exited":
        return said, Frame(Channel.FINAL, frames.final_exit(terminal.exit_code, terminal.signal))
    why = terminal.reason or f"The terminal is {terminal.state}."
    return said, Frame(Channel.FINAL, frames.final_failure(f"terminal.{terminal.state}", why, terminal=terminal.id))
