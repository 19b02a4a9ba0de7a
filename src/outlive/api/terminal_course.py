"""What an attachment that is passed on has come to, and what to do next when it breaks. Pure.

Invariant: `Passed.offset` is the place of the next output byte that the client has not been sent, whatever was said to
it before: an attachment that begins there loses no byte and repeats none.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from outlive.base import InvalidError, OutliveError
from outlive.machine.status import Machine
from outlive.machine.terminal.frames import Channel, read_status
from outlive.machine.terminal.status import Terminal

Told = Literal["hibernated", "away", "running"]

_PASSING = frozenset({"unavailable", "deadline", "fenced", "conflict"})


@dataclass(slots=True)
class Passed:
    """What one client has been sent."""

    offset: int | None = None  # None: nothing is counted yet
    is_drawing: bool = False  # output draws the present screen, and is not counted
    is_ended: bool = False  # it has heard how the terminal ended
    is_detached: bool = False  # it was too slow, and has been told
    machine: Told = "running"

    @property
    def resume_at(self) -> int | None:
        """From where to attach again. A screen that was not drawn to its end is drawn anew."""
        return None if self.is_drawing else self.offset

    def see(self, channel: Channel, payload: bytes) -> None:
        if channel is Channel.OUTPUT:
            if not self.is_drawing and self.offset is not None:
                self.offset += len(payload)
        elif channel is Channel.FINAL:
            self.is_ended = True
        elif channel is Channel.STATUS:
            self._see_status(payload)

    def _see_status(self, payload: bytes) -> None:
        try:
            words = read_status(payload)
        except InvalidError:
            return
        match words:
            case {"offset": int(offset)}:
                self.offset = offset
                self.is_drawing = words.get("screen") is True
            case {"seam": {"at": int(at)}}:
                self.offset = max(self.offset or 0, at)
            case {"detached": _}:
                self.is_detached = True
            case {"machine": ("hibernated" | "away" | "running") as machine}:
                self.machine = machine
            case _:
                pass


class Course(NamedTuple):
    """`attach` to the node that has it, `read` what is left from the recording, `wait` for the machine, or `end`: it
    does not come back."""

    do: Literal["attach", "read", "wait", "end"]
    told: Told = "away"  # while it is waited for
    reason: str = ""  # of the end


def decide(terminal: Terminal, machine: Machine) -> Course:
    """What to do for somebody who is attached to `terminal`, now that no node sends anything."""
    if not terminal.is_open:
        return Course("read")
    if "deleted" in (machine.state, machine.desired):
        return Course("end", reason="The machine was deleted.")
    if machine.state == "lost" and machine.checkpoint is None:
        return Course("end", reason=machine.reason or "The machine is lost.")
    if machine.state == "hibernated" or machine.desired == "hibernated":
        return Course("wait", told="hibernated")
    if machine.state in ("running", "paused"):
        return Course("attach")
    return Course("wait", told="away")


def is_passing(error: OutliveError) -> bool:
    """Whether attaching again later may work: the node restarts, the machine moves or is stopped for a while."""
    return error.kind in _PASSING
