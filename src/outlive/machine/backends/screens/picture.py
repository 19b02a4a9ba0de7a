"""From what an engine knows of a screen to the bytes that draw it on a fresh terminal of the same size. Pure.

Invariant: what is drawn never asks a terminal for anything; only text, and sequences from the lists below, get out.

The order matters: cells first, while every mode is as in a fresh terminal; then what the cursor keeps, and the modes.
What stands before the cursor is printed after all that, since the order to repeat it may follow; then what would have
changed it; and the unfinished bytes last of all.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

PLAIN = "\x1b[0m"
_CHARSETS_RESET = "\x1b(B\x1b)B\x1b*B\x1b+B\x0f"


class Cell(NamedTuple):
    text: str  # empty: nothing was printed here
    sgr: str = PLAIN  # the whole sequence, from plain on
    width: int = 1  # in columns; the columns that a wide one covers have no cell of their own


class Row(NamedTuple):
    cells: Sequence[Cell]
    is_wrapped: bool = False  # its line goes on in the next row


class Margins(NamedTuple):
    """From 0, ends included; None: the whole side."""

    rows: tuple[int, int] | None = None
    cols: tuple[int, int] | None = None


class Pen(NamedTuple):
    """What the cursor is, and what a saved one keeps."""

    row: int = 0
    col: int = 0
    is_past_end: bool = False  # in the last column, after it was printed in
    sgr: str = PLAIN
    charsets: str = ""
    is_origin: bool = False  # counts rows and columns from the margins


class Side(NamedTuple):
    """One of the two screens."""

    rows: Sequence[Row]  # what scrolled out of it first
    saved: Pen
    above: str = ""  # what scrolled out before these rows, drawn already, its last line not ended
    is_above_wrapped: bool = False  # and going on in these rows
    keyboard: str = ""


class Picture(NamedTuple):
    cols: int
    height: int
    main: Side
    alternate: Side | None
    alternate_mode: int  # how the program changed to it: 47, 1047 or 1049
    pen: Pen
    margins: Margins
    tabs: str
    modes: Sequence[str]  # the sequences that set what differs from a fresh terminal
    title: str
    is_clustering: bool  # one cell holds a whole grapheme, however many characters it is made of
    is_inserting: bool
    pending: bytes  # what is not complete yet


def draw(picture: Picture, *, has_history: bool = True) -> bytes:
    if not has_history:
        alternate = None if picture.alternate is None else _seen(picture.alternate, picture.height)
        picture = picture._replace(main=_seen(picture.main, picture.height), alternate=alternate)
    canvas = _Canvas(picture)
    canvas.say("\x1b[!p\x1b[H\x1b[2J" + ("\x1b[?2027h" if picture.is_clustering else ""))
    canvas.side(picture.main)
    if picture.alternate is None:
        canvas.save(picture.main.saved, "\x1b7")
    else:
        _draw_alternate(canvas, picture, picture.alternate)
    canvas.say(picture.tabs)
    canvas.parts.extend(picture.modes)
    if picture.title:
        canvas.say(f"\x1b]2;{picture.title}\x1b\\")
    canvas.finish()
    return "".join(canvas.parts).encode(errors="replace") + picture.pending


def _seen(side: Side, height: int) -> Side:
    return side._replace(rows=side.rows[-height:], above="", is_above_wrapped=False)


def draw_corner(rows: Sequence[Row], cols: int, height: int) -> list[bytes]:
    """The upper left of these rows: each as text with colours that begins in its first column and fills `cols`, with
    blanks where there is nothing. A wide cell that is cut is blank."""
    return [_draw_cut(row, cols).encode(errors="replace") for row in rows[:height]]


def _draw_cut(row: Row, cols: int) -> str:
    parts, sgr, at = [], PLAIN, 0
    for cell in row.cells:
        width = min(cell.width, cols - at)
        if width <= 0:
            break
        if cell.sgr != sgr:
            parts.append(cell.sgr)
            sgr = cell.sgr
        parts.append(cell.text if cell.text and width == cell.width else " " * width)
        at += width
    return "".join([*parts, PLAIN, " " * (cols - at)])


def _draw_alternate(canvas: "_Canvas", picture: Picture, side: Side) -> None:
    if picture.alternate_mode == 1049:  # it saves the cursor by itself
        canvas.save(picture.main.saved, "\x1b[?1049h")
    else:
        canvas.save(picture.main.saved, "\x1b7")
        canvas.say(f"\x1b[?{picture.alternate_mode}h")
    canvas.say("\x1b[H")
    canvas.side(side)
    canvas.save(side.saved, "\x1b7")


class _Canvas:
    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.parts: list[str] = []
        self._sgr = PLAIN
        self._screen: Sequence[Row] = ()

    def say(self, sequence: str) -> None:
        self.parts.append(sequence)

    def paint(self, sgr: str) -> None:
        if sgr != self._sgr:
            self.say(sgr)
            self._sgr = sgr

    def side(self, side: Side) -> None:
        """From the cursor's place, which is the first, on: every row once, so that the right number scrolls out."""
        self.say(side.above)
        is_going_on = side.is_above_wrapped
        for i, row in enumerate(side.rows):
            if (i or side.above) and not is_going_on:
                self.paint(PLAIN)
                self.say("\r\n")
            if is_going_on and not row.cells[0].text:
                # Only something printed takes the line on to this row. What it took is blank again.
                self.paint(PLAIN)
                self.say(" \r\x1b[X")
            following = side.rows[i + 1] if row.is_wrapped and i + 1 < len(side.rows) else None
            self._row(row, is_colored=is_going_on, following=following)
            is_going_on = following is not None
        self.paint(PLAIN)
        self._screen = side.rows[-self.picture.height :]
        self.say(side.keyboard)

    def _row(self, row: Row, *, is_colored: bool, following: Row | None) -> None:
        """Coloured: going on to this row may have scrolled, which gives a new row the background of the text."""
        runs = [(key, list(cells)) for key, cells in groupby(row.cells, _kind)]
        if runs[-1][0] == ("blank", PLAIN) and not is_colored and following is None:
            runs.pop()
        for i, ((kind, sgr), cells) in enumerate(runs):
            if kind == "text":
                self.paint(sgr)
                self.say("".join([cell.text for cell in cells]))
                continue
            count = sum([cell.width for cell in cells])
            if sgr != PLAIN or is_colored:
                self.paint(sgr)
                self.say(f"\x1b[{count}X")
            if following is not None and i == len(runs) - 1:
                count -= 1
            self.say(f"\x1b[{count}C" if count else "")
        if following is not None and not row.cells[-1].text and following.cells[0].width == 1:
            # The next row's text goes on from here only if there is something. A wide one goes on by itself.
            self.paint(row.cells[-1].sgr)
            self.say(" ")

    def save(self, pen: Pen, how: str) -> None:
        """Have the terminal keep this as its saved cursor, and be as before. There are no margins yet."""
        self._place(pen, Margins())
        self.paint(pen.sgr)
        self.say(pen.charsets + how)
        self.paint(PLAIN)
        self.say((_CHARSETS_RESET if pen.charsets else "") + ("\x1b[?6l" if pen.is_origin else ""))

    def finish(self) -> None:
        pen, margins = self.picture.pen, self.picture.margins
        is_outside = pen.is_origin and not _holds(margins, pen)
        if is_outside:
            self.save(pen, "\x1b7")
        self.say(f"\x1b[{margins.rows[0] + 1};{margins.rows[1] + 1}r" if margins.rows else "")
        self.say(f"\x1b[?69h\x1b[{margins.cols[0] + 1};{margins.cols[1] + 1}s" if margins.cols else "")
        if is_outside:
            # Counted from margins that it is not within, it gets there only by being restored. What was saved is lost.
            self.say("\x1b8")
        else:
            self._place(pen, margins)
            self._repeat_last(pen)
        self.paint(pen.sgr)
        self.say(pen.charsets + ("\x1b[4h" if self.picture.is_inserting else ""))

    def _place(self, pen: Pen, margins: Margins) -> None:
        if pen.is_origin:
            self.say("\x1b[?6h")
        last = self._cell_before(pen.row, pen.col + 1) if pen.is_past_end else None
        if last is None:
            self._move(pen, pen.col, margins)
        else:
            self._print(pen, last if last.text else Cell(" ", last.sgr), pen.col + 1, margins)

    def _repeat_last(self, pen: Pen) -> None:
        """What stands before the cursor is printed once more: the next bytes may be the order to repeat it."""
        if not pen.is_past_end:
            cell = self._cell_before(pen.row, pen.col)
            if cell is not None and cell.text:
                self._print(pen, cell, pen.col, self.picture.margins)

    def _print(self, pen: Pen, cell: Cell, end: int, margins: Margins) -> None:
        self._move(pen, end - cell.width, margins)
        self.paint(cell.sgr)
        self.say(cell.text)

    def _cell_before(self, row: int, col: int) -> Cell | None:
        at = 0
        for cell in self._screen[row].cells:
            at += cell.width
            if at == col:
                return cell
        return None

    def _move(self, pen: Pen, col: int, margins: Margins) -> None:
        rows, cols = margins if pen.is_origin else (None, None)
        self.say(f"\x1b[{pen.row + 1 - (rows[0] if rows else 0)};{col + 1 - (cols[0] if cols else 0)}H")


def _holds(margins: Margins, pen: Pen) -> bool:
    spans = ((margins.rows, pen.row), (margins.cols, pen.col))
    return all(span is None or span[0] <= place <= span[1] for span, place in spans)


def _kind(cell: Cell) -> tuple[str, str]:
    return ("text" if cell.text else "blank", cell.sgr)
