"""What a terminal's output says beside its text: where commands begin and end, titles, the bell. Pure and streaming.

Read are OSC 133 (A prompt, B its end, C the command starts, D;exit it is over), OSC 633;E (the command line), OSC 0 and
2 (the title) and BEL. The output is written by whoever runs in the machine: a mark is what the program says, no proof.

Invariant 1: any cut of the same bytes into pieces gives the same marks.
Invariant 2: no input raises, and what is held is bounded by `SEQUENCE_LIMIT`, however long a sequence is.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple

SEQUENCE_LIMIT = 64 * 1024  # bytes of one OSC; a longer one says nothing to us
TITLE_LIMIT = 256  # characters
COMMAND_LINE_LIMIT = 16 * 1024  # characters
BELL_EVERY = (
    1_024  # bytes: of the bells that ring closer together the first counts, so that a flood of them costs little
)
COMMANDS_LIMIT = 1_024  # that a fold remembers; the oldest goes

MarkKind = Literal["prompt", "prompt_end", "command_line", "started", "ended", "title", "bell"]


class FoundMark(NamedTuple):
    kind: MarkKind
    start: int  # offset of its first byte
    end: int  # offset after its last byte
    text: str = ""  # of a title or a command line
    exit_code: int | None = None  # of `ended`, if it was said
    prompt: str = (
        ""  # of `prompt`, `prompt_end` and `ended`: which one, if the shell says so: drawn again it is the same
    )


_BEL, _ESC = 0x07, 0x1B
_OSC = b"]"
_INTRODUCER = re.compile(rb"\x1b[]PX^_]")  # OSC, DCS, SOS, PM, APC: strings that go on to their end
# BEL ends an OSC and is swallowed by the others; CAN and SUB break any off; so does an ESC, unless it is that of ST.
_OSC_END = re.compile(rb"[\x07\x18\x1a\x1b]")
_STRING_END = re.compile(rb"[\x18\x1a\x1b]")
_SHELL: dict[bytes, MarkKind] = {b"A": "prompt", b"B": "prompt_end", b"C": "started", b"D": "ended"}
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(\\))")
_PROMPT = re.compile(rb";id=([0-9A-Za-z._-]{1,64})(?:;|$)")
_EXIT = re.compile(rb"-?[0-9]{1,10}")


class Marks:
    """Finds marks in output that comes piece by piece."""

    def __init__(self) -> None:
        self._next = 0  # offset of what should come next
        self._is_after_esc = False  # the last byte was an ESC whose meaning the next byte decides
        self._string: bytes | None = None  # the introducer's second byte, inside a string
        self._string_start = 0
        self._held = bytearray()  # of an OSC
        self._is_too_long = False
        self._quiet_until = 0

    def feed(self, offset: int, data: bytes) -> list[FoundMark]:
        """The marks that end in `data`, which begins at `offset`. After a hole nothing that was begun goes on."""
        if offset != self._next:
            self._forget()
        self._next = offset + len(data)
        if self._string is None and not self._is_after_esc and b"\x07" not in data and b"\x1b" not in data:
            return []
        if self._is_after_esc and data:
            data, offset = b"\x1b" + data, offset - 1
            self._is_after_esc = False
        found: list[FoundMark] = []
        at = 0
        while at < len(data):
            at = (
                self._ground(data, at, offset, found) if self._string is None else self._inside(data, at, offset, found)
            )
        return found

    def _forget(self) -> None:
        self._is_after_esc = False
        self._string = None
        self._held.clear()
        self._quiet_until = 0

    def _ground(self, data: bytes, at: int, offset: int, found: list[FoundMark]) -> int:
        match = _INTRODUCER.search(data, at)
        stop = match.start() if match else len(data)
        bell = data.find(b"\x07", max(at, self._quiet_until - offset), stop)
        if bell >= 0:
            found.append(FoundMark("bell", offset + bell, offset + bell + 1))
            self._quiet_until = offset + bell + BELL_EVERY
            return bell + 1
        if match is None:
            self._is_after_esc = data[-1] == _ESC
            return stop
        self._string = data[match.end() - 1 : match.end()]
        self._string_start = offset + match.start()
        self._held.clear()
        self._is_too_long = False
        return match.end()

    def _inside(self, data: bytes, at: int, offset: int, found: list[FoundMark]) -> int:
        is_osc = self._string == _OSC
        match = (_OSC_END if is_osc else _STRING_END).search(data, at)
        stop = match.start() if match else len(data)
        if is_osc:
            self._hold(data, at, stop)
        if match is None:
            return stop
        is_over, after = True, match.end()
        if data[stop] == _ESC:
            if after == len(data):
                self._is_after_esc = True  # this comes again with the next piece
                return after
            is_over = data[after] == ord("\\")
            after = after + 1 if is_over else stop  # another sequence begins at this ESC
        elif data[stop] != _BEL:
            is_over = False
        if is_over and is_osc and not self._is_too_long:
            mark = _read(bytes(self._held), self._string_start, offset + after)
            if mark is not None:
                found.append(mark)
        self._string = None
        self._held.clear()
        return after

    def _hold(self, data: bytes, at: int, stop: int) -> None:
        if self._is_too_long or len(self._held) + stop - at > SEQUENCE_LIMIT:
            self._is_too_long = True
            self._held.clear()
        else:
            self._held += data[at:stop]


def _read(osc: bytes, start: int, end: int) -> FoundMark | None:
    number, _, rest = osc.partition(b";")
    if number == b"133":
        letter, _, parameters = rest.partition(b";")
        kind = _SHELL.get(letter)
        if kind is None:
            return None
        exit_code = _exit_code(parameters) if kind == "ended" else None
        prompt = _PROMPT.search(b";" + parameters)
        return FoundMark(kind, start, end, exit_code=exit_code, prompt=prompt[1].decode() if prompt else "")
    if number == b"633" and rest.startswith(b"E;"):
        line = _unescape(rest[2:].partition(b";")[0]).decode("utf-8", "replace")
        return FoundMark("command_line", start, end, _clean(line, "\n\t")[:COMMAND_LINE_LIMIT])
    if number in (b"0", b"2"):
        return FoundMark("title", start, end, _clean(rest.decode("utf-8", "replace"), "")[:TITLE_LIMIT])
    return None


def _exit_code(parameters: bytes) -> int | None:
    word = parameters.partition(b";")[0]
    return int(word) if _EXIT.fullmatch(word) else None


def _unescape(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"\\", text)


def _clean(text: str, kept: str) -> str:
    """Without control characters, and without format characters: those that turn the direction of text among them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one for one in text if one in kept or unicodedata.category(one) not in ("Cc", "Cf", "Cs"))


class CommandRun(NamedTuple):
    """One command that was typed at a prompt, as the shell marked it."""

    start: int  # where the prompt ended, or the command started if no prompt was marked
    output_start: int
    output_end: int | None = None  # None: it runs
    exit_code: int | None = None
    command_line: str | None = None


class Commands:
    """Folds marks into the commands that were run. Marks in a senseless order are made the best of."""

    def __init__(self) -> None:
        self.runs: deque[CommandRun] = deque(maxlen=COMMANDS_LIMIT)
        self.is_at_prompt = False  # the prompt has ended and nothing was started since
        self._prompt_end: int | None = None
        self._command_line: str | None = None

    @property
    def running(self) -> CommandRun | None:
        return self.runs[-1] if self.runs and self.runs[-1].output_end is None else None

    def take(self, marks: Iterable[FoundMark]) -> None:
        for mark in marks:
            self._take(mark)

    def _take(self, mark: FoundMark) -> None:
        if mark.kind == "prompt":
            self._finish(mark.start, None)  # a shell that says no D, or was replaced by another one
            self.is_at_prompt = False
            self._prompt_end = self._command_line = None
        elif mark.kind == "prompt_end":
            self.is_at_prompt = True
            self._prompt_end = mark.end
        elif mark.kind == "command_line":
            self._command_line = mark.text
        elif mark.kind == "started":
            self._finish(mark.start, None)
            start = mark.start if self._prompt_end is None else self._prompt_end
            self.runs.append(CommandRun(start, mark.end, command_line=self._command_line))
            self.is_at_prompt = False
            self._prompt_end = self._command_line = None
        elif mark.kind == "ended":
            self._finish(mark.start, mark.exit_code)

    def _finish(self, end: int, exit_code: int | None) -> None:
        if (run := self.running) is not None:
            self.runs[-1] = run._replace(output_end=end, exit_code=exit_code)
