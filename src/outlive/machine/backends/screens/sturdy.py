"""Screen models that outlive their engine: whatever it raises, the terminal goes on, and so does its recording.

Rule: an engine that has failed is left for a fresh one, which is shown what the old one still can draw. The first time
of the same kind, then of the other one if there is any, and at last of none: such a screen stays empty. Each of these
is said in the log, so a program that knows how to break engines fills no disk.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from outlive.machine.terminal.screen import Place, Screen, Screens

_log = logging.getLogger(__name__)

T = TypeVar("T")


class SturdyScreens:
    def __init__(self, engine: Screens, other: Callable[[], Screens] | None = None) -> None:
        self._engine = engine
        self._other = other
        self.name = engine.name

    def new(self, cols: int, rows: int) -> "SturdyScreen":
        engines = [lambda: self._engine] * 2 + ([self._other] if self._other is not None else [])
        return SturdyScreen(cols, rows, engines)


class SturdyScreen:
    def __init__(self, cols: int, rows: int, engines: Sequence[Callable[[], Screens]]) -> None:
        self.cols, self.rows = cols, rows
        self._left = list(engines)  # that were not tried yet
        self._screen: Screen | None = None
        self._renew()

    @property
    def title(self) -> str:
        return self._do(lambda screen: screen.title, "")

    @property
    def cursor(self) -> Place:
        return self._do(lambda screen: screen.cursor, Place(0, 0))

    @property
    def is_alternate(self) -> bool:
        return self._do(lambda screen: screen.is_alternate, False)

    @property
    def size_bytes(self) -> int:
        return self._do(lambda screen: screen.size_bytes, 0)

    def feed(self, data: bytes) -> None:
        self._do(lambda screen: screen.feed(data), None)

    def resize(self, cols: int, rows: int) -> None:
        self.cols, self.rows = cols, rows
        self._do(lambda screen: screen.resize(cols, rows), None)

    def draw(self, *, has_history: bool = True) -> bytes:
        return self._do(lambda screen: screen.draw(has_history=has_history), b"")

    def corner(self, cols: int, rows: int) -> list[bytes]:
        nothing = [b" " * cols for _ in range(min(rows, self.rows))]
        return self._do(lambda screen: screen.corner(cols, rows), nothing)

    def text(self) -> str:
        return self._do(lambda screen: screen.text(), "")

    def close(self) -> None:
        if self._screen is not None:
            _tried(self._screen.close, None)
            self._screen = None

    def _do(self, act: Callable[[Screen], T], otherwise: T) -> T:
        if (screen := self._screen) is None:
            return otherwise
        try:
            return act(screen)
        except Exception:  # noqa: BLE001  # it is not our code, and not our bytes
            _log.exception("an engine of screens has failed: a fresh screen takes its place")
            self._renew()
            return otherwise

    def _renew(self) -> None:
        failed = self._screen
        drawn = b"" if failed is None else _tried(failed.draw, b"")
        self.close()
        while self._left and self._screen is None:
            self._screen = _tried(partial(_drawn, self._left.pop(0), self.cols, self.rows, drawn), None)
            drawn = b""  # it may be what cannot be drawn
        if self._screen is None:
            _log.error("no engine of screens is left: this screen stays empty")


def _drawn(engine: Callable[[], Screens], cols: int, rows: int, drawing: bytes) -> Screen | None:
    screen = engine().new(cols, rows)
    screen.feed(drawing)
    return screen


def _tried(act: Callable[[], T], otherwise: T) -> T:
    try:
        return act()
    except Exception:  # noqa: BLE001  # it is not our code, and not our bytes
        _log.exception("an engine of screens has failed")
        return otherwise
