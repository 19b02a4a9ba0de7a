"""A recording as asciicast v3, for asciinema's player and whatever else reads it. Pure: records in, lines out.

Each line is JSON and ends with a newline: a header, then `[interval, code, data]`. What asciicast has no word for is a
marker (`m`), which players show on their time line: who types from here on, who was given the lease, where the machine
was rolled back, where output is missing. So every `i` event belongs to whom the marker before it names.

Invariant 1: intervals add up to the real time: each is what is left to the microsecond, none is rounded by itself.
Invariant 2: whatever the machine printed, a line is valid JSON in valid UTF-8. A character that was cut between two
records is put together; what is no UTF-8 is U+FFFD.
"""

import codecs
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import orjson
from pydantic import JsonValue

from outlive.machine.terminal.journal import Actor, Input, Leased, Mark, Output, Record, Resize, Snapshot

MEDIA_TYPE = "application/x-asciicast"
_TYPE = "xterm-256color"
_MICROSECOND = timedelta(microseconds=1)
_RESET = "\x1bc"  # a snapshot draws on a fresh terminal
_SIGNALLED = 128  # as shells count: ended by signal N is exit status 128 + N


class Asciicast:
    """Take the records in order; `finish` at the end."""

    def __init__(self, cols: int, rows: int, *, title: str = "", command: Sequence[str] | None = None) -> None:
        self._size = (cols, rows)
        self._title = title
        self._command = command
        self._told_at: datetime | None = None  # what the intervals so far add up to; None: no header yet
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._cut_at: datetime | None = None  # when the beginning of a cut character was printed
        self._typist: Actor | None = None
        self._is_drawn = False  # what is on the player's screen is what was there; a snapshot says nothing new
        self._exit: Mark | None = None

    def lines(self, record: Record) -> Iterator[bytes]:
        """What this record adds."""
        if self._told_at is None:
            if isinstance(record, Resize | Snapshot):
                self._size = (record.cols, record.rows)
            yield self._header(record.at)
        match record:
            case Output():
                yield from self._output(record)
            case Input():
                yield from self._input(record)
            case Resize():
                yield from self._resize(record.at, record.cols, record.rows)
            case Leased():
                holder = "free" if record.lease is None else _named(record.lease.name, record.lease.kind)
                yield self._event(record.at, "m", f"lease: {holder} ({record.how})")
            case Mark():
                yield from self._mark(record)
            case Snapshot():
                yield from self._snapshot(record)

    def finish(self, at: datetime) -> Iterator[bytes]:
        """The end: a character that was never completed, the exit status. `at`: if there was no record at all."""
        if self._told_at is None:
            yield self._header(at)
        yield from self._cut_off()
        if self._exit is not None:
            yield self._event(self._exit.at, "x", str(_status_of(self._exit)))

    def _header(self, at: datetime) -> bytes:
        self._told_at = at
        header: dict[str, object] = {
            "version": 3,
            "term": {"cols": self._size[0], "rows": self._size[1], "type": _TYPE},
            "timestamp": int(at.astimezone(UTC).timestamp()),
        }
        if self._title:
            header["title"] = _sane(self._title)
        if self._command:
            header["command"] = _sane(" ".join(self._command))
        return orjson.dumps(header, option=orjson.OPT_APPEND_NEWLINE)

    def _event(self, at: datetime, code: str, data: str) -> bytes:
        assert self._told_at is not None
        # A clock that was set back stands still until it has caught up.
        interval = max(0, (at - self._told_at) // _MICROSECOND)
        self._told_at += interval * _MICROSECOND
        seconds, microseconds = divmod(interval, 1_000_000)
        return b'[%d.%06d,"%s",%s]\n' % (seconds, microseconds, code.encode(), orjson.dumps(_sane(data)))

    def _output(self, record: Output) -> Iterator[bytes]:
        self._is_drawn = True
        text = self._text.decode(record.data)
        if self._text.getstate()[0]:
            self._cut_at = record.at
        if text:
            yield self._event(record.at, "o", text)

    def _input(self, record: Input) -> Iterator[bytes]:
        if record.operator != self._typist:
            self._typist = record.operator
            yield self._event(record.at, "m", f"typing: {_named(record.operator.name, record.operator.kind)}")
        yield self._event(record.at, "i", record.data.decode("utf-8", "replace"))

    def _resize(self, at: datetime, cols: int, rows: int) -> Iterator[bytes]:
        if self._size != (cols, rows):
            self._size = (cols, rows)
            yield self._event(at, "r", f"{cols}x{rows}")

    def _snapshot(self, record: Snapshot) -> Iterator[bytes]:
        if self._is_drawn or record.offset == 0:
            return
        self._is_drawn = True
        yield from self._resize(record.at, record.cols, record.rows)
        yield self._event(record.at, "o", _RESET + record.drawing.decode("utf-8", "replace"))

    def _mark(self, record: Mark) -> Iterator[bytes]:
        value = record.value if isinstance(record.value, dict) else {}
        if record.kind == "exit":
            self._exit = record
        elif record.kind in ("seam", "gap"):
            yield from self._cut_off()
            self._is_drawn = False
            said = "rolled back" if record.kind == "seam" else "output is missing"
            yield self._event(
                record.at, "m", f"{record.kind}: {said} from offset {value.get('from')} to {record.offset}"
            )
        elif record.kind in ("lost", "closed"):
            yield self._event(record.at, "m", f"terminal {record.kind}")
        elif record.kind == "signal":
            yield self._event(record.at, "m", f"signal: {value.get('number')} by {_sender(value)}")
        elif record.kind == "given_up":
            yield self._event(record.at, "m", f"given up: what was typed before byte {value.get('to')} and not read")

    def _cut_off(self) -> Iterator[bytes]:
        text = self._text.decode(b"", final=True)
        self._text.reset()
        if text and self._cut_at is not None:
            yield self._event(self._cut_at, "o", text)


def _status_of(mark: Mark) -> int:
    value = mark.value if isinstance(mark.value, dict) else {}
    code, signal = value.get("exit"), value.get("signal")
    if isinstance(code, int):
        return code
    return _SIGNALLED + signal if isinstance(signal, int) else 1


def _named(name: str, kind: str) -> str:
    return f"{name} ({kind})"


def _sender(value: dict[str, JsonValue]) -> str:
    operator = value.get("operator")
    who = operator if isinstance(operator, dict) else {}
    return _named(str(who.get("name")), str(who.get("kind")))


def _sane(text: str) -> str:
    """Surrogates cannot be written; nothing of ours has them, but a name may come from anywhere."""
    return text.encode("utf-8", "replace").decode()
