"""Which escape sequences of a program may reach the operator's own terminal, and in what form. Pure.

Rule 1: what is not named here is dropped. Named is what draws, and the few modes that full-screen programs cannot do
        without.
Rule 2: nothing that a terminal answers, nothing that reaches beyond the cells of the screen (clipboard, window,
        palette, printer, fonts, notifications, scrollback), nothing that cannot be undone when the operator leaves.
Rule 3: what passes is written anew from its parsed parts, never copied. So it means the same to every terminal, however
        that would have read the bytes of the program.
"""

import re
from dataclasses import dataclass, field

TITLE_LIMIT = 120  # characters of a title that are shown
URI_LIMIT = 2048
_NUMBER_LIMIT = 9999  # no screen is larger
_REPEAT_LIMIT = 1000  # CSI b draws so many cells from a few bytes

# Finals without marker and intermediate that draw or move the cursor, by how many numbers they take.
_DRAWS = {
    **dict.fromkeys(b"@ABCDEFGIJKLMPSTXZ`ade", 1),
    **dict.fromkeys(b"Hfr", 2),
}
_SGR = re.compile(r"[0-9]{0,5}(?:[;:][0-9]{0,5}){0,63}")
_NUMBERS = re.compile(r"[0-9]{0,9}(?:;[0-9]{0,9}){0,15}")

# DEC private modes, with what they are when nobody has touched them. Not here, among others: 3 (width of the window),
# 12 and 45 (what they were is not known), 69 (margins left and right), 1004, 2031 and 2048 (make the terminal report).
_MODES = {
    1: False,  # cursor keys for programs
    5: False,  # reverse video
    6: False,  # origin
    7: True,  # wrap at the right edge
    25: True,  # cursor is seen
    47: False,  # the alternate screen, three ways
    1047: False,
    1049: False,
    1000: False,  # mouse: buttons, drags, moves, and the form that has no bound
    1002: False,
    1003: False,
    1006: False,
    2004: False,  # bracketed paste
    2026: False,  # draw at once what belongs together
}
_ALTERNATE = (47, 1047, 1049)
_SAVE_CURSOR = 1048  # leaves no trace
_PLAIN_ESCAPES = b"78DEM=>"  # save and restore the cursor, index, next line, reverse index, keypad for programs or not
_CHARSETS = b"0AB"
_LINE_SIZES = b"34568"  # double height and width, and the alignment pattern

_HARMFUL_IN_TITLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffd\ud800-\udfff]"
    r"|[\U000e0000-\U000e0fff]"
)
_LINK_TARGET = re.compile(rb"(?:https?://|mailto:)[\x21-\x7e]+", re.IGNORECASE)
_LINK_ID = re.compile(rb"id=[A-Za-z0-9_.-]{1,64}")
# Margins (which move the cursor, so around it), colours, character sets: never counted, always put back.
_PLAIN_DRAWING = b"\x1b7\x1b[r\x1b8\x1b[m\x1b(B\x1b)B\x1b*B\x1b+B\x0f"
_END_LINK = b"\x1b]8;;\x1b\\"


def clean_title(raw: bytes) -> str:
    """A title as text on one short line, without anything a terminal would obey or not show."""
    text = _HARMFUL_IN_TITLE.sub(" ", raw.decode("utf-8", "replace"))
    return " ".join(text.split())[:TITLE_LIMIT]


@dataclass
class Escapes:
    """Decides on one sequence after another, and remembers what has to be undone."""

    title: str = ""  # the newest one, cleaned
    _modes: dict[int, bool] = field(default_factory=dict)
    _is_link_open: bool = False
    _is_keypad_changed: bool = False
    _is_insert_on: bool = False
    _is_style_changed: bool = False

    @property
    def is_alternate(self) -> bool:
        return any(self._modes.get(mode, False) for mode in _ALTERNATE)

    def escape(self, intermediates: bytes, final: int) -> bytes:
        """ESC, without those that begin something longer."""
        if not intermediates:
            if final == ord("c"):  # reset of everything: only what is ours to reset
                return self.reset() + b"\x1b[H\x1b[2J"
            if final not in _PLAIN_ESCAPES:
                return b""
            if final in b"=>":
                self._is_keypad_changed = final == ord("=")
            return b"\x1b%c" % final
        if intermediates in (b"(", b")", b"*", b"+") and final in _CHARSETS:
            return b"\x1b%b%c" % (intermediates, final)
        if intermediates == b"#" and final in _LINE_SIZES:
            return b"\x1b#%c" % final
        return b""

    def csi(self, body: bytes, final: int) -> bytes:
        """CSI; `body` is all between it and the final byte, controls taken out."""
        text = body.decode("ascii", "replace")
        if final == ord("m"):
            return b"\x1b[%bm" % body if _SGR.fullmatch(text) is not None else b""
        if text.startswith("?") and final in b"hl" and _NUMBERS.fullmatch(text[1:]) is not None:
            return self._private_modes(_numbers(text[1:]), is_set=final == ord("h"))
        if text.startswith("?") and final in b"JK" and text[1:] in ("", "0", "1", "2"):
            return b"\x1b[%b%c" % (body, final)
        if text.endswith(" ") and final == ord("q") and text[:-1] in ("", "0", "1", "2", "3", "4", "5", "6"):
            self._is_style_changed = True
            return b"\x1b[%bq" % body
        if text == "!" and final == ord("p"):  # soft reset: what this terminal makes of it may be more than ours
            return self.reset()
        if _NUMBERS.fullmatch(text) is None:
            return b""
        return self._plain_csi(_numbers(text), final)

    def _plain_csi(self, numbers: list[int | None], final: int) -> bytes:
        if final in b"su":  # with numbers these are something else
            return b"\x1b[%c" % final if numbers == [None] else b""
        if final in b"hl":
            if 4 not in numbers:  # insert; the others change the keyboard or the echo
                return b""
            self._is_insert_on = final == ord("h")
            return b"\x1b[4%c" % final
        if final == ord("b"):
            return b"\x1b[%db" % min(numbers[0] or 1, _REPEAT_LIMIT)
        takes = _DRAWS.get(final)
        if takes is None or len(numbers) > takes or (final in b"JK" and (numbers[0] or 0) > 2):
            return b""
        told = b";".join(b"" if number is None else b"%d" % min(number, _NUMBER_LIMIT) for number in numbers)
        return b"\x1b[%b%c" % (told, final)

    def _private_modes(self, numbers: list[int | None], *, is_set: bool) -> bytes:
        passed = []
        for number in numbers:
            if number in _MODES:
                self._modes[number] = is_set
                passed.append(number)
            elif number == _SAVE_CURSOR:
                passed.append(number)
        # One by one: a terminal that does not know one of several may drop them all.
        return b"".join(b"\x1b[?%d%c" % (mode, b"h"[0] if is_set else b"l"[0]) for mode in passed)

    def osc(self, body: bytes, *, shows_titles: bool) -> bytes:
        """OSC: titles and links. All else is dropped, marks of the shell too: they are read on the other side."""
        number, _, rest = body.partition(b";")
        if number in (b"0", b"2"):
            self.title = clean_title(rest)
            return b"\x1b]2;%b\x1b\\" % self.title.encode() if shows_titles else b""
        if number == b"8":
            return self._link(rest)
        return b""

    def _link(self, rest: bytes) -> bytes:
        parameters, _, target = rest.partition(b";")
        if len(target) <= URI_LIMIT and _LINK_TARGET.fullmatch(target) is not None:
            self._is_link_open = True
            named = parameters if _LINK_ID.fullmatch(parameters) is not None else b""
            return b"\x1b]8;%b;%b\x1b\\" % (named, target)
        was_open, self._is_link_open = self._is_link_open, False
        return _END_LINK if was_open else b""

    def reset(self) -> bytes:
        """What undoes all that was let through so far. The cursor stays where it is."""
        undone = [_END_LINK] if self._is_link_open else []
        undone += [
            b"\x1b[?%d%c" % (mode, b"h"[0] if _MODES[mode] else b"l"[0])
            for mode, is_set in self._modes.items()
            if is_set != _MODES[mode]
        ]
        if self._is_keypad_changed:
            undone.append(b"\x1b>")
        if self._is_insert_on:
            undone.append(b"\x1b[4l")
        if self._is_style_changed:
            undone.append(b"\x1b[0 q")
        undone.append(_PLAIN_DRAWING)
        self.__init__(title=self.title)  # type: ignore[misc]
        return b"".join(undone)


def _numbers(text: str) -> list[int | None]:
    return [int(number) if number else None for number in text.split(";")]
