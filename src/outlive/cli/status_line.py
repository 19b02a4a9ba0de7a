"""What `outlive attach` says beside what the terminal prints: in the title of the window, always, and for moments that
matter on the lowest row. Pure.

A row of our own would have to be kept out of every program's drawing; the title cannot get in anybody's way. What the
lowest row covers is drawn anew when the notice goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outlive.cli.escapes import clean_title
from outlive.cli.render import clean_line

_NAME_LIMIT = 40


@dataclass
class StatusLine:
    """What is known of an attachment, and what to say of it."""

    terminal: str
    me: str  # id of the principal that we are
    observes: bool = False  # only looks on, whoever types
    title: str = ""  # of the program
    lease: Mapping[str, Any] | None = None
    here: int = 1
    machine: Literal["running", "hibernated", "away"] = "running"
    is_lost: bool = False  # the connection
    is_cut: bool = False  # the remote screen is not of our size

    @property
    def holds_lease(self) -> bool:
        return self.lease is not None and self.lease.get("operator") == self.me

    @property
    def holder(self) -> str:
        if self.lease is None:
            return "nobody types"
        if self.holds_lease:
            return "you type elsewhere" if self.observes else "you type"
        return f"{_name(self.lease)} types"

    @property
    def standing(self) -> str | None:
        """What is said as long as it is so: the screen stands still, and cannot be asked for."""
        return _LOST if self.is_lost else self._machine_notice() if self.machine != "running" else None

    def _machine_notice(self) -> str:
        is_asleep = self.machine == "hibernated" and not self.observes
        return f"{_MACHINE[self.machine]}; type to wake it" if is_asleep else _MACHINE[self.machine]

    def text(self) -> str:
        said = [self.holder]
        if self.here > 1:
            said.append(f"{self.here} here")
        if self.is_cut:
            said.append("other size")
        if self.machine != "running":
            said.append(f"machine is {self.machine}")
        if self.is_lost:
            said = [_LOST]
        return f"{self.title or self.terminal[:13]} — outlive: {' · '.join(said)}"

    def take(self, words: Mapping[str, Any]) -> str | None:
        """Hear a status; returns what is worth a notice."""
        notice = None
        match words:
            case {"operators": list(operators)}:
                self.here = max(1, len(operators))
            case {"machine": ("running" | "hibernated" | "away") as machine}:
                if machine != self.machine:
                    self.machine = machine
                    notice = self._machine_notice()
            case {"gap": {"from": int(start), "to": int(end)}}:
                notice = f"{end - start} bytes of output are gone"
            case {"seam": _}:
                notice = "the machine went back to its last checkpoint; what was printed since did not happen any more"
            case {"title": str(title)}:
                self.title = clean_title(title.encode(errors="replace"))
            case {"refused": refused}:
                notice = self._refused(refused)
            case _:
                pass
        if "terminal" in words:
            self.machine = "running"  # its node has just answered
        if "lease" in words:
            notice = self._leased(words["lease"], words) or notice
        return notice

    def _leased(self, lease: object, words: Mapping[str, Any]) -> str | None:
        before = self.lease
        self.lease = lease if isinstance(lease, Mapping) else None
        if "terminal" in words or (before or {}).get("operator") == (self.lease or {}).get("operator"):
            return None
        if self.lease is None:
            return "nobody types now"
        if self.holds_lease:
            return f"{self.holder} now"
        return f"{_name(self.lease)} {'types now' if before is None else 'has taken over'}"

    def _refused(self, refused: object) -> str:
        lease, code = (refused.get("lease"), refused.get("code")) if isinstance(refused, Mapping) else (None, None)
        if code == "machine.paused":
            return "the machine is paused; what you typed was refused"
        if isinstance(lease, Mapping) and lease.get("operator") != self.me:
            return f"{_name(lease)} types here; what you typed was refused. Ctrl-] t takes over"
        return "what you typed was refused"


_LOST = "connection lost, trying again"
_MACHINE = {
    "running": "the machine is back",
    "hibernated": "the machine is hibernated",
    "away": "the machine is away, and is waited for",
}


def _name(lease: Mapping[str, Any]) -> str:
    name = clean_line(lease.get("name") or lease.get("operator") or "somebody")[:_NAME_LIMIT]
    kind = clean_line(lease.get("kind") or "")[:_NAME_LIMIT]
    return f"{name} ({kind})" if kind else name


def set_title(text: str) -> bytes:
    return b"\x1b]2;%b\x1b\\" % clean_title(text.encode(errors="replace")).encode()


def draw_notice(text: str, cols: int, rows: int) -> bytes:
    """On the lowest row, whatever the cursor, the margins and the colours are; the cursor stays where it was."""
    shown = clean_line(f"outlive: {text}")[: max(1, cols - 2)]
    return b"\x1b7\x1b[?6l\x1b[%d;1H\x1b[0;7m %b \x1b[K\x1b[m\x1b8" % (rows, shown.encode())
