"""Server-sent events, from bytes to frames (the WHATWG rules). Pure: feed it chunks as they come, cut anywhere.

Rule 1: only a frame that came whole (ended by an empty line) is given out; what a cut connection leaves is dropped.
Rule 2: a frame is bounded. A server that sends more without an end is broken, and is told apart from a slow one.
"""

import codecs
from typing import NamedTuple

from outlive.base import BrokenError

FRAME_LIMIT = 80 * 1024 * 1024  # characters: a payload of 64 MiB and its envelope
_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


class SseFrame(NamedTuple):
    id: str | None  # None: this frame set none
    event: str
    data: str


class SseParser:
    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._limit = limit
        self._is_first = True
        self._skip_lf = False  # the last character was CR: a LF that follows belongs to it
        self._rest: list[str] = []  # the line that has not ended yet, in pieces: joined once, however many they are
        self._held = 0  # characters in `_rest` and in the frame that has not ended yet
        self._id: str | None = None
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[SseFrame]:
        """The frames that `chunk` completes."""
        text = self._normalise(self._decode(chunk))
        if not text:
            return []
        frames: list[SseFrame] = []
        first, *others = text.split("\n")
        self._rest.append(first)
        self._hold(len(first))
        for following in others:
            self._line("".join(self._rest), frames)
            self._rest = [following]
            self._hold(len(following))
        return frames

    def _normalise(self, text: str) -> str:
        """One kind of line end, and no byte order mark at the very start."""
        if not text:
            return text
        if self._is_first:
            self._is_first = False
            text = text.removeprefix(_BOM)
        if self._skip_lf and text:
            self._skip_lf = False
            text = text.removeprefix("\n")
        if "\r" in text:
            self._skip_lf = text.endswith("\r")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text

    def _hold(self, characters: int) -> None:
        self._held += characters
        if self._held > self._limit:
            raise BrokenError("stream.frame_too_big", f"The server sent a frame of more than {self._limit} characters.")

    def _line(self, line: str, frames: list[SseFrame]) -> None:
        if not line:
            if self._data:
                frames.append(SseFrame(self._id, self._event or "message", "\n".join(self._data)))
            self._id, self._event, self._data, self._held = None, "", [], 0
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value
            case "event":
                self._event = value
            case _:
                # A comment (nothing before the colon), `retry`, or a field we do not know. A server that only
                # comments holds no frame open: that is how it shows that it lives.
                self._held -= len(line)
