"""What a person types at `outlive attach`: what goes to the terminal, and what is meant for us. Pure.

Ctrl-] opens a menu of one key; Ctrl-] again sends it. What is pasted is never a command.
"""

import re
from typing import Literal, NamedTuple

Wish = Literal["menu", "detach", "take", "yield", "help", "nothing"]

ESCAPE_KEY = b"\x1d"  # Ctrl-]
MENU = "d detach · t take · y yield · ? help · Ctrl-] send it"
HELP = "d leave it running · t type yourself · y let others type · else go on"

_PASTE_BEGINS, _PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"
_MARKS = re.compile(rb"\x1d|\x1b\[20[01]~")
_WISHES: dict[bytes, Wish] = {b"d": "detach", b"t": "take", b"y": "yield", b"?": "help"}


class Typed(NamedTuple):
    data: bytes


class Wished(NamedTuple):
    wish: Wish


class Keys:
    def __init__(self) -> None:
        self._is_menu_open = False
        self._is_pasting = False

    def feed(self, data: bytes) -> list[Typed | Wished]:
        found: list[Typed | Wished] = []
        while data:
            if self._is_menu_open:
                found.append(self._choose(data[:1]))
                data = data[1:]
            else:
                data = self._type(data, found)
        return found

    def _choose(self, key: bytes) -> Typed | Wished:
        if key == ESCAPE_KEY:
            self._is_menu_open = False
            return Typed(key)
        wish = _WISHES.get(key.lower(), "nothing")
        self._is_menu_open = wish == "help"
        return Wished(wish)

    def _type(self, data: bytes, found: list[Typed | Wished]) -> bytes:
        """Takes all up to a key for us; returns the rest."""
        for mark in _MARKS.finditer(data):
            if mark[0] == ESCAPE_KEY:
                if self._is_pasting:
                    continue
                if mark.start():
                    found.append(Typed(data[: mark.start()]))
                self._is_menu_open = True
                found.append(Wished("menu"))
                return data[mark.end() :]
            self._is_pasting = mark[0] == _PASTE_BEGINS
        found.append(Typed(data))
        return b""
