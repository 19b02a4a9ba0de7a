"""The output of a machine's terminal, made harmless for the terminal of the person who looks at it. Pure.

A program in a machine may print anything: bytes that make a terminal type into itself (queries that it answers), write
the clipboard, rename windows, print, remap keys. Here such output becomes valid UTF-8, a few controls, and the
sequences of `escapes.py`, written anew.

Rule 1: chunks do not matter: the output for a stream is the same however it was cut.
Rule 2: nothing is held back but the beginning of something that is not whole yet, a bounded number of bytes.
Rule 3: the person's terminal is taken to read UTF-8, and nothing here can make it stop doing so.
"""

import re
from collections.abc import Callable

from outlive.cli.escapes import Escapes

SEQUENCE_LIMIT = 256  # bytes of an ESC or a CSI; longer ones are dropped
STRING_LIMIT = 4096  # bytes of an OSC; longer ones are dropped

_REPLACED = "\ufffd".encode()

# Text: printable ASCII, the controls from BEL to SI, and UTF-8 that is well formed and no C1 control. And, for speed,
# the sequences that programs use most, where `escapes.py` would write them anew as they are. The group is not
# possessive: Python before 3.11.5 takes half of what does not match for it, and nothing follows to go back for.
_SAFE = re.compile(
    rb"(?:[\x07-\x0f\x20-\x7e]++"
    rb"|\xc2[\xa0-\xbf]|[\xc3-\xdf][\x80-\xbf]"
    rb"|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
    rb"|\x1b\[(?:(?:0|[1-9][0-9]{0,2})(?:;(?:0|[1-9][0-9]{0,2})){0,15})?m"
    rb"|\x1b\[(?:[1-9][0-9]{0,2})?[A-DGPXd]|\x1b\[[1-9][0-9]{0,2};[1-9][0-9]{0,2}H|\x1b\[[HJK]"
    rb")*"
)
# The beginning of a character, as far as it is one.
_PARTIAL = re.compile(
    rb"[\xc2-\xdf]|\xe0[\xa0-\xbf]?|[\xe1-\xec\xee\xef][\x80-\xbf]?|\xed[\x80-\x9f]?"
    rb"|\xf0(?:[\x90-\xbf][\x80-\xbf]?)?|[\xf1-\xf3][\x80-\xbf]{0,2}|\xf4(?:[\x80-\x8f][\x80-\xbf]?)?"
)
# What may stand in a sequence before its final byte. Controls there are obeyed at once; CAN, SUB, ESC and what is not
# ASCII end it without effect.
_ESCAPE_BODY = re.compile(rb"[\x00-\x17\x19\x1c-\x2f\x7f]*+")
_CSI_BODY = re.compile(rb"[\x00-\x17\x19\x1c-\x3f\x7f]*+")
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]+")
_NOT_OBEYED = re.compile(rb"[^\x07-\x0f]+")
_OSC_BODY = re.compile(rb"[^\x07\x18\x1a\x1b]*+")
_STRING_BODY = re.compile(rb"[^\x18\x1a\x1b]*+")
_STRINGS = b"PX^_k"  # DCS, SOS, PM, APC, and the title of a window in tmux and screen
_BEL, _CAN, _SUB, _ESC = 0x07, 0x18, 0x1A, 0x1B

_State = Callable[[bytes, int, list[bytes]], int]


class Harmless:
    """Feed it what a terminal printed, and show what it gives back. `reset()` undoes what that did to modes."""

    def __init__(self, *, shows_titles: bool = True) -> None:
        self._shows_titles = shows_titles
        self._escapes = Escapes()
        self._character = b""  # the beginning of one
        self._body = b""  # of the sequence that has begun
        self._state: _State = self._text

    @property
    def title(self) -> str:
        """The newest title, cleaned."""
        return self._escapes.title

    @property
    def is_alternate(self) -> bool:
        """Whether a full-screen program has the screen, as far as what was fed tells."""
        return self._escapes.is_alternate

    def feed(self, data: bytes) -> bytes:
        """What may be shown now."""
        if self._character:
            data, self._character = self._character + data, b""
        out: list[bytes] = []
        at = 0
        while at < len(data):
            at = self._state(data, at, out)
        return b"".join(out)

    def reset(self) -> bytes:
        """What puts the person's terminal back as it was: modes, colours, margins, the screen. What was begun is
        forgotten, too."""
        self._character, self._state = b"", self._text
        return self._escapes.reset()

    def _text(self, data: bytes, at: int, out: list[bytes]) -> int:
        found = _SAFE.match(data, at)
        end = found.end() if found is not None else at
        if end > at:
            out.append(data[at:end])
        if end == len(data):
            return end
        if data[end] == _ESC:
            self._body, self._state = b"", self._escape
            return end + 1
        if data[end] < 0x80:
            return end + 1  # a control that nobody needs
        return self._no_text(data, end, out)

    def _no_text(self, data: bytes, at: int, out: list[bytes]) -> int:
        partial = _PARTIAL.match(data, at)
        if partial is None:
            out.append(_REPLACED)
            return at + 1
        if partial.end() == len(data):
            self._character = data[at:]
            return len(data)
        if data[at] == 0xC2 and 0x80 <= data[at + 1] < 0xA0:
            return at + 2  # a C1 control: gone, and what follows it is text
        out.append(_REPLACED)
        return partial.end()

    def _escape(self, data: bytes, at: int, out: list[bytes]) -> int:
        end = self._take(_ESCAPE_BODY, data, at, out)
        if end == len(data):
            return end
        final = data[end]
        self._state = self._text
        if not 0x30 <= final <= 0x7E:
            return _after_break(data, end)
        if self._body:
            if len(self._body) <= SEQUENCE_LIMIT:
                out.append(self._escapes.escape(self._body, final))
        elif final == ord("["):
            self._state = self._csi
        elif final == ord("]"):
            self._state = self._osc
        elif final in _STRINGS:
            self._state = self._string
        else:
            out.append(self._escapes.escape(b"", final))
        return end + 1

    def _csi(self, data: bytes, at: int, out: list[bytes]) -> int:
        end = self._take(_CSI_BODY, data, at, out)
        if end == len(data):
            return end
        self._state = self._text
        if not 0x40 <= data[end] <= 0x7E:
            return _after_break(data, end)
        if len(self._body) <= SEQUENCE_LIMIT:
            out.append(self._escapes.csi(self._body, data[end]))
        return end + 1

    def _take(self, pattern: re.Pattern[bytes], data: bytes, at: int, out: list[bytes]) -> int:
        """Read on in the body of a sequence; returns where something else stands."""
        end = _end_of(pattern, data, at)
        if end > at:
            told = data[at:end]
            if _CONTROLS.search(told) is not None:
                out.append(_NOT_OBEYED.sub(b"", told))
                told = _CONTROLS.sub(b"", told)
            self._collect(told, SEQUENCE_LIMIT)
        return end

    def _osc(self, data: bytes, at: int, out: list[bytes]) -> int:
        end = _end_of(_OSC_BODY, data, at)
        self._collect(data[at:end], STRING_LIMIT)
        if end == len(data):
            return end
        self._state = self._text
        if data[end] in (_BEL, _ESC) and len(self._body) <= STRING_LIMIT:
            out.append(self._escapes.osc(self._body, shows_titles=self._shows_titles))
        return end if data[end] == _ESC else end + 1

    def _string(self, data: bytes, at: int, _out: list[bytes]) -> int:
        end = _end_of(_STRING_BODY, data, at)
        if end < len(data):
            self._state = self._text
        return _after_break(data, end) if end < len(data) else end

    def _collect(self, piece: bytes, limit: int) -> None:
        # One byte more than the limit says that it was too long.
        self._body += piece[: limit + 1 - len(self._body)]


def _end_of(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found is not None else at


def _after_break(data: bytes, at: int) -> int:
    """CAN and SUB only end what was begun; anything else counts for itself."""
    return at + 1 if data[at] in (_CAN, _SUB) else at
