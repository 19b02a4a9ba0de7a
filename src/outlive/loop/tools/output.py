"""What of an output a model is shown: bounded, head and tail, with a note of what was left out. Pure.

Invariant: what `bounded` returns has at most `limit` bytes (of no less than `SMALLEST_LIMIT`), is valid text, and
whatever is left out is said.
"""

from typing import NamedTuple

from outlive.machine.terminal.plain import plain_text

SMALLEST_LIMIT = 128  # bytes: below that there is hardly room to say what is left out
LIVE_LIMIT = 256 * 1024  # characters of one call that are shown live
_NOTE_BYTES = 64  # of the note that says so, at most
_ENDED = b"\x1b]133;D"  # how a shell marks the end of a command: what comes after it is its next prompt
_LINE_LIMIT = 4 * 1024  # bytes that wait for the end of their line


class Bounded(NamedTuple):
    text: str
    is_whole: bool


def bounded(text: str, limit: int) -> Bounded:
    """The head and the tail of it, cut at line ends where there are some near."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return Bounded(data.decode(), is_whole=True)
    half = max(limit - _NOTE_BYTES, limit // 2) // 2
    head, tail = data[:half], data[-half:]
    if (end := head.rfind(b"\n", half // 2)) >= 0:
        head = head[: end + 1]
    if (start := tail.find(b"\n", 0, half // 2)) >= 0:
        tail = tail[start + 1 :]
    left_out = len(data) - len(head) - len(tail)
    note = f"\n[... {left_out:,} bytes are left out here ...]\n"
    return Bounded(_text(head, "end") + note + _text(tail, "start"), is_whole=False)


def _text(data: bytes, cut: str) -> str:
    """Without the half of a character that the cut may have left."""
    if cut == "end":
        return data.decode("utf-8", "ignore")
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode("utf-8", "replace")


class LivePieces:
    """Pieces of one stream, told again from offset 0 after a break, as plain text line by line, each once. Nothing
    behind the end of the command that a shell has marked is shown."""

    def __init__(self, limit: int = LIVE_LIMIT) -> None:
        self._seen = 0  # bytes of the stream
        self._waiting = b""
        self._left = limit

    def take(self, offset: int, data: bytes) -> str:
        new = data[max(0, self._seen - offset) :]
        if not new:
            return ""
        self._seen = offset + len(data)
        waiting = self._waiting + new
        if len(waiting) > _LINE_LIMIT:
            cut = len(waiting)
        else:
            ended = waiting.find(_ENDED)
            cut = waiting.rfind(b"\n", 0, ended if ended >= 0 else None) + 1
        self._waiting = waiting[cut:]
        return self._show(waiting[:cut])

    def end(self, length: int | None = None) -> str:
        """What was held back. `length`: of all that the command printed, if that is known."""
        rest, self._waiting = self._waiting, b""
        if length is None:
            return self._show(rest.partition(_ENDED)[0])
        return self._show(rest[: max(0, length - (self._seen - len(rest)))])

    def _show(self, data: bytes) -> str:
        if not data or self._left <= 0:
            return ""
        text = plain_text(data)
        shown = text[: self._left]
        self._left -= len(text)
        return shown if self._left > 0 else shown + "\n[More follows; it is in the result.]\n"
