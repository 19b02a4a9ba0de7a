"""A remote screen in a window of another size: its left edge, as many rows as fit, and nothing beyond it.

What was printed goes into a model of the remote screen, of the remote size; what the model shows is drawn here row by
row, where it changed. So no line wraps at the wrong edge. The row of the cursor is always among those that are
seen: that is where things happen. What does not fit is not seen; the title says so.
"""

from typing import Protocol

from outlive.cli.harmless import Harmless


class Model(Protocol):
    """Of `outlive.machine.terminal.screen.Screen` what is needed here."""

    @property
    def cursor(self) -> tuple[int, int]: ...
    def feed(self, data: bytes) -> None: ...
    def corner(self, cols: int, rows: int) -> list[bytes]: ...
    def close(self) -> None: ...


_ALL = 10_000  # rows; no screen has more


class Letterbox:
    def __init__(self, model: Model, cols: int, rows: int) -> None:
        """`cols` and `rows` are those of the window."""
        self._model = model
        self._cols = cols
        self._rows = rows
        self._top = 0  # the remote row that is our first
        self._drawn: list[bytes] | None = None

    def feed(self, data: bytes) -> None:
        self._model.feed(data)

    def forget(self) -> None:
        """Something else was drawn over it: the next drawing is a whole one."""
        self._drawn = None

    def close(self) -> None:
        self._model.close()

    def paint(self) -> bytes:
        """What brings the window up to date."""
        at_row, at_col = self._model.cursor
        self._top = min(max(self._top, at_row - self._rows + 1), at_row)  # as little movement as will do
        rows = self._model.corner(self._cols, _ALL)[self._top :][: self._rows]
        before = self._drawn
        parts = [b"\x1b[?25l", b"" if before is not None else b"\x1b[m\x1b[2J"]
        for number, row in enumerate(rows):
            if before is None or number >= len(before) or row != before[number]:
                parts.append(b"\x1b[%d;1H\x1b[m%b\x1b[m" % (number + 1, _cleaned(row)))
        self._drawn = rows
        if at_col < self._cols:
            parts.append(b"\x1b[%d;%dH\x1b[?25h" % (at_row - self._top + 1, at_col + 1))
        return b"".join(parts)


def _cleaned(row: bytes) -> bytes:
    return Harmless(shows_titles=False).feed(row)
