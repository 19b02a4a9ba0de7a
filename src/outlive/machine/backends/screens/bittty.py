"""Screen models by bittty, in Python alone: where pyghostty cannot be had. Slower by far; what scrolls out is not kept.

Invariant: the engine answers nobody, as no cable is plugged into it; and no output resizes it, prints or changes its
language: what would is taken out of it when it is built.
"""

import codecs
from dataclasses import replace
from functools import cache
from typing import Any

from bittty import XTERM, Board
from bittty.style import Style, style_to_ansi

from outlive.machine.backends.screens.overlong import PENDING_LIMIT, PIECE, skip_overlong
from outlive.machine.backends.screens.picture import PLAIN, Cell, Margins, Pen, Picture, Row, Side, draw, draw_corner
from outlive.machine.terminal.screen import Place

_ESCAPES_OF_SETS = "()*+"
_SHIFTS = ("", "\x0e", "\x1bn", "\x1bo")  # G0 to G3 into the left half
_RIGHT_SHIFTS = ("", "\x1b~", "", "\x1b|")
_UNSHIFTED_RIGHT = 2

# As in ghostty_state: those that a drawing carries over.
_DEC_MODES = (1, 5, 7, 9, 12, 25, 45, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 2004)
_ANSI_MODES = (2, 12, 20)
_ALTERNATE_MODES = (1049, 1047, 47)
_CLUSTERING = (True, 2027, 3)  # always on, or combining characters would get cells of their own

# VT52, the width of the page, and text from right to left: another language and another screen.
_UNSUPPORTED = frozenset({(True, 2), (True, 3), (True, 34), (True, 40), (True, 95), (True, 2048)})
_MODEL = replace(
    XTERM,
    options=frozenset(),
    reflows=True,
    fixed_modes=XTERM.fixed_modes | {_CLUSTERING},
    unsupported_modes=_UNSUPPORTED,
)
_DEAF_TO = ("XTWINOPS", "DECSCPP", "DECSLPP", "DECSNLS")

# What the engine raises on input that nobody sends in earnest. It is left where it was, at the beginning of a sequence.
_ENGINE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_IDLE_BYTES = 120 * 1024
_CELL_BYTES = 16


class BitttyScreens:
    name = "bittty"

    def new(self, cols: int, rows: int) -> "BitttyScreen":
        return BitttyScreen(cols, rows)


class BitttyScreen:
    def __init__(self, cols: int, rows: int) -> None:
        self._board: Any = _new_board(cols, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._begun: bytes | None = None  # how a sequence began whose rest is thrown away

    @property
    def cols(self) -> int:
        return int(self._board.width)

    @property
    def rows(self) -> int:
        return int(self._board.height)

    @property
    def title(self) -> str:
        return "".join(char for char in self._board.title.title if char.isprintable())

    @property
    def cursor(self) -> Place:
        return Place(self._board.cursor.y, self._board.cursor.display_x)

    @property
    def is_alternate(self) -> bool:
        return bool(self._board.blitter.in_alt_screen)

    @property
    def size_bytes(self) -> int:
        return _IDLE_BYTES + 2 * self.cols * self.rows * _CELL_BYTES

    def feed(self, data: bytes) -> None:
        start = 0
        while start < len(data):
            if self._begun is not None:
                after = skip_overlong(self._begun, data, start)
                self._begun = self._begun if after is None else None
                start = len(data) if after is None else after
                continue
            self._parse(self._decoder.decode(data[start : start + PIECE]))
            start += PIECE

    def _parse(self, text: str) -> None:
        parser = self._board.parser
        try:
            parser.feed(text)
        except _ENGINE_ERRORS:
            parser.reset()
        if len(parser.buffer) > PENDING_LIMIT:
            self._begun = parser.buffer[:2].encode()
            parser.reset()

    def resize(self, cols: int, rows: int) -> None:
        self._board.resize(cols, rows)

    def text(self) -> str:
        return str(self._board.capture_text()).rstrip("\n")

    def draw(self, *, has_history: bool = True) -> bytes:
        return draw(self._picture(), has_history=has_history)

    def corner(self, cols: int, rows: int) -> list[bytes]:
        picture = self._picture()
        return draw_corner((picture.alternate or picture.main).rows[-self.rows :], cols, rows)

    def close(self) -> None:
        self._board = None

    def _picture(self) -> Picture:
        board = self._board
        fresh = _fresh_modes()
        blitter = board.blitter
        saved = {is_alternate: _saved(kept) for is_alternate, kept in board.cursor.saved.items()}
        return Picture(
            self.cols,
            self.rows,
            Side(_rows(blitter.primary_page), saved[False]),
            Side(_rows(blitter.alt_page), saved[True]) if self.is_alternate else None,
            next((number for number in _ALTERNATE_MODES if board.modes.mode_status(True, number) == 1), 1049),
            self._pen(),
            self._margins(),
            "\x1b[3g" + "".join(f"\x1b[{col + 1}G\x1bH" for col in sorted(board.cursor.tab_stops)) + "\x1b[H",
            [sequence for mode, sequence in _modes(board).items() if sequence != fresh[mode]],
            self.title,
            is_clustering=False,
            is_inserting=board.modes.insert_mode,
            pending=self._pending(),
        )

    def _pen(self) -> Pen:
        board = self._board
        return Pen(
            board.cursor.y,
            board.cursor.display_x,
            is_past_end=board.cursor.wrap_pending,
            sgr=_sgr(board.style.current),
            charsets=_charsets(board.charset.save()),
            is_origin=board.modes.origin_mode,
        )

    def _margins(self) -> Margins:
        blitter = self._board.blitter
        above = (blitter.scroll_top, blitter.scroll_bottom)
        return Margins(
            above if above != (0, self.rows - 1) else None,
            (blitter.left_margin, blitter.right_margin) if self._board.modes.left_right_margin_mode else None,
        )

    def _pending(self) -> bytes:
        if self._begun is not None:
            return self._begun
        parser = self._board.parser
        return str(parser.buffer[parser.pos :]).encode(errors="replace") + self._decoder.getstate()[0]


def _new_board(cols: int, rows: int) -> Any:
    board = Board(width=cols, height=rows, model=_MODEL)
    board.modes.grapheme_clustering = True
    board.blitter.set_grapheme_clustering(True)
    board.title.title = board.title.icon_title = ""
    for name in _DEAF_TO:
        board.registry.pop(name, None)
    return board


@cache
def _fresh_modes() -> dict[str, str]:
    return _modes(_new_board(80, 24))


def _rows(page: Any) -> list[Row]:
    """A cell without text is what a wide character before it covers."""
    return [Row(_cells(line), page.is_line_wrapped(y)) for y, line in enumerate(page.grid)]


def _cells(line: list[tuple[Style, str]]) -> list[Cell]:
    found = []
    for at, (style, text) in enumerate(line):
        if text:
            is_wide = at + 1 < len(line) and not line[at + 1][1]
            sgr = _sgr(style)
            found.append(Cell("" if text == " " and sgr == PLAIN else str(text), sgr, 2 if is_wide else 1))
    return found


def _sgr(style: Style) -> str:
    return PLAIN + str(style_to_ansi(style))


def _saved(kept: Any) -> Pen:
    charsets = _charsets(kept.charsets)
    return Pen(kept.y, kept.x, kept.wrap_pending, _sgr(kept.style), charsets, kept.origin_mode)


def _charsets(kept: tuple[int, int, tuple[str, ...]]) -> str:
    left, right, sets = kept
    designated = [f"\x1b{escape}{name}" for escape, name in zip(_ESCAPES_OF_SETS, sets, strict=True) if name != "B"]
    return "".join(designated) + _SHIFTS[left] + (_RIGHT_SHIFTS[right] if right != _UNSHIFTED_RIGHT else "")


def _modes(board: Any) -> dict[str, str]:
    """By mode, the sequence that makes it as it is here."""
    status = board.modes.mode_status
    found = {f"?{n}": f"\x1b[?{n}{'h' if status(True, n) == 1 else 'l'}" for n in _DEC_MODES}
    found |= {f"{n}": f"\x1b[{n}{'h' if status(False, n) == 1 else 'l'}" for n in _ANSI_MODES}
    found["keypad"] = "\x1b=" if board.modes.application_keypad else "\x1b>"
    steady = {"block": 2, "underline": 4, "bar": 6}[board.cursor.shape]
    found["shape"] = f"\x1b[{steady - bool(board.modes.cursor_blinking)} q"
    return found
