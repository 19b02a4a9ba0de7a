"""What comes over the wire about terminals, as plain frozen values. Fields we do not know are left out. Pure.

Frames are WebSocket messages whose first byte is a channel, as in Kubernetes' `v5.channel.k8s.io`.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outlive.base import InvalidError, NotFoundError, is_id
from outlive.client.wire import decode, garbled

Mode = Literal["observe", "type"]

INPUT, OUTPUT, FINAL, RESIZE, STATUS, CLOSE = 0, 1, 3, 4, 5, 255
SUBPROTOCOL = "v5.channel.k8s.io"


@dataclass(frozen=True, slots=True)
class TerminalFacts:
    """A terminal as the server showed it when it was last asked."""

    id: str
    machine: str
    state: str  # open, exited, closed, lost
    offset: int  # of the next byte of output, counted since it was born
    cols: int
    rows: int
    lease: Mapping[str, Any] | None  # who types: {operator, name, kind, since, offset}
    operators: tuple[Mapping[str, Any], ...]  # who is here: {operator, name, kind, mode, since, client}
    title: str
    command: Any
    exit_code: int | None
    signal: int | None
    reason: str | None
    created_at: str | None
    ended_at: str | None

    def to_json(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in self.__slots__}
        return {**shown, "operators": list(self.operators)}


@dataclass(frozen=True, slots=True)
class TerminalOutput:
    """What the terminal printed, from `offset` on: its own bytes, unaltered. Before showing them to a person, make them
    harmless. With `is_screen` they draw the screen as it is at `offset`, on an empty one, and are not counted."""

    offset: int
    data: bytes
    is_screen: bool = False

    def to_json(self) -> dict[str, Any]:
        told = {"offset": self.offset, "output": base64.b64encode(self.data).decode()}
        return {**told, "screen": True} if self.is_screen else told


@dataclass(frozen=True, slots=True)
class TerminalStatus:
    """Something else that was said: `lease`, `refused`, `size`, `operators`, `machine`, `gap`, `seam`, `title`, ...
    The first word of each connection has `terminal`, `offset`, `cols`, `rows` and `lease`."""

    words: Mapping[str, Any]

    @property
    def is_attached(self) -> bool:
        return "terminal" in self.words and "offset" in self.words

    def to_json(self) -> dict[str, Any]:
        return {"status": dict(self.words)}


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """The end. Without code and signal it ended otherwise, and `reason` says how."""

    exit_code: int | None
    signal: int | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"exit": {"exit_code": self.exit_code, "signal": self.signal, "reason": self.reason}}


TerminalFrame = TerminalOutput | TerminalStatus | TerminalExit


def terminal_of(raw: Mapping[str, Any]) -> TerminalFacts:
    try:
        return TerminalFacts(
            id=raw["id"],
            machine=raw["machine"],
            state=raw["state"],
            offset=raw["offset"],
            cols=raw["cols"],
            rows=raw["rows"],
            lease=raw.get("lease"),
            operators=tuple(raw.get("operators") or ()),
            title=raw.get("title") or "",
            command=raw.get("command"),
            exit_code=raw.get("exit_code"),
            signal=raw.get("signal"),
            reason=raw.get("reason"),
            created_at=raw.get("created_at"),
            ended_at=raw.get("ended_at"),
        )
    except KeyError:
        raise garbled() from None


def checked_terminal(id: str) -> str:
    # It becomes part of a path: what is no id never leaves the client.
    if not is_id(id, "term"):
        raise NotFoundError("terminal.unknown", f"There is no terminal {id!r}: ids look like `term_...`.")
    return id


def input_body(data: bytes | str) -> dict[str, str]:
    """What is typed by a call: text as it is, other bytes in base64."""
    try:
        return {"data": data if isinstance(data, str) else data.decode()}
    except UnicodeDecodeError:
        assert isinstance(data, bytes)
        return {"base64": base64.b64encode(data).decode()}


def resize_message(cols: int, rows: int) -> bytes:
    if not (1 <= cols <= 1000 and 1 <= rows <= 1000):
        raise InvalidError("terminal.size", f"{cols} x {rows} is no size of a terminal: 1 to 1000 each.")
    return bytes((RESIZE,)) + json.dumps({"Width": cols, "Height": rows}).encode()


@dataclass(slots=True)
class Attached:
    """Where an attachment stands: messages in, frames out; each byte of output once, however often the server begins
    anew. Pure."""

    offset: int | None = None  # of the next byte to give out; None: none was told yet
    cols: int = 0
    rows: int = 0
    lease: Mapping[str, Any] | None = None
    _at: int = 0  # of the next byte that the server sends
    _is_drawing: bool = False
    _exit: tuple[int | None, int | None] | None = None

    @property
    def resume_at(self) -> int | None:
        """Where a new connection begins; None: with the present screen."""
        return None if self._is_drawing else self.offset

    def take(self, message: bytes) -> list[TerminalFrame]:
        if not message:
            raise garbled()
        channel, payload = message[0], message[1:]
        if channel == OUTPUT:
            return self._output(payload)
        if channel == STATUS:
            return self._status(decode(payload))
        if channel == FINAL:
            return [self._final(decode(payload))]
        return []  # what later servers may say

    def forget(self) -> None:
        """The next connection begins with the present screen."""
        self.offset = None

    def _output(self, data: bytes) -> list[TerminalFrame]:
        if self.offset is None:
            raise garbled()
        if self._is_drawing:
            return [TerminalOutput(self.offset, data, is_screen=True)]
        start, self._at = self._at, self._at + len(data)
        new = data[max(0, self.offset - start) :]
        if not new:
            return []
        self.offset = self._at
        return [TerminalOutput(self._at - len(new), new)]

    def _status(self, words: Mapping[str, Any]) -> list[TerminalFrame]:
        match words:
            case {"offset": int(offset)}:
                self._at = offset
                self._is_drawing = words.get("screen") is True
                # A screen is what there is at its offset, also if more was given out before.
                if self.offset is None or self._is_drawing or offset > self.offset:
                    self.offset = offset
            case {"seam": {"at": int(at)}}:
                self._at = at
                self.offset = max(at, self.offset or 0)
            case {"size": {"cols": int(cols), "rows": int(rows)}}:
                self.cols, self.rows = cols, rows
        if "exit" in words:
            self._exit = (_number(words["exit"]), _number(words.get("signal")))
        if "lease" in words:
            self.lease = words["lease"] if isinstance(words["lease"], Mapping) else None
        if "terminal" in words:
            self.cols, self.rows = _number(words.get("cols")) or self.cols, _number(words.get("rows")) or self.rows
        return [TerminalStatus(words)]

    def _final(self, status: Mapping[str, Any]) -> TerminalExit:
        if self._exit is not None and self._exit != (None, None):
            return TerminalExit(*self._exit)
        if status.get("status") == "Success":
            return TerminalExit(0)
        for cause in _causes(status):
            text = cause.get("message")
            if cause.get("reason") == "ExitCode" and isinstance(text, str) and text.isdecimal():
                return TerminalExit(int(text))
        return TerminalExit(None, None, str(status.get("message") or "It ended without saying why."))


def _causes(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    return [cause for cause in causes if isinstance(cause, Mapping)] if isinstance(causes, list) else []


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
