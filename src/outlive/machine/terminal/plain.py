"""Terminal output as plain text: what a reader without a terminal gets. Pure.

Escape sequences go, and so do control characters but line ends and tabs. A carriage return, a backspace and "erase the
line" do what they do on a screen, so that a progress bar is its last state and not all of them. Movements of the cursor
between lines are not followed: whoever needs the screen asks the screen model.

Invariant: the result holds no control character but newline and tab, whatever came in, in time linear in its length.
"""

import re
from collections.abc import Iterator

COLUMNS_LIMIT = 4096  # in which a line is overwritten; beyond, what is written is added

# Each alternative ends at a character that it does not contain itself, so no input makes the search go back and forth.
_ESCAPES = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~]?)"  # CSI
    r"|\x1b\][^\x07\x1b\x18\x1a]*(?:\x07|\x1b\\|[\x18\x1a])?"  # OSC
    r"|\x1b[PX^_][^\x1b\x18\x1a]*(?:\x1b\\|[\x18\x1a])?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"  # all others
)
_OTHER_CONTROLS = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]+")
_ERASE = "\x1b"  # stands for "erase to the end of the line" between the two passes
_EDITS = re.compile(r"[\r\b\x1b]")


def plain_text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ESCAPES.sub(_erasing, text)
    text = _OTHER_CONTROLS.sub("", text)
    if not _EDITS.search(text):
        return text
    return "\n".join(_settled(line) for line in text.split("\n"))


def _erasing(sequence: re.Match[str]) -> str:
    if sequence["final"] != "K":
        return ""
    # 2: the whole line goes, and the cursor stays where it is. What is before it is rarely looked at again.
    return {"": _ERASE, "0": _ERASE, "2": f"\r{_ERASE}"}.get(sequence["parameters"], "")


def _settled(line: str) -> str:
    line = line.rstrip("\r")
    if not _EDITS.search(line):
        return line
    shown: list[str] = []
    column = 0
    for piece in _pieces(line):
        if piece == "\r":
            column = 0
        elif piece == "\b":
            column = max(0, column - 1)
        elif piece == _ERASE:
            del shown[column:]
        else:
            if len(shown) > COLUMNS_LIMIT:
                column = len(shown)
            shown[column : column + len(piece)] = piece
            column += len(piece)
    return "".join(shown)


def _pieces(line: str) -> Iterator[str]:
    at = 0
    for edit in _EDITS.finditer(line):
        if edit.start() > at:
            yield line[at : edit.start()]
        yield edit[0]
        at = edit.end()
    if at < len(line):
        yield line[at:]
