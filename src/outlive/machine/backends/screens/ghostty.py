"""Screen models by libghostty, the core of the Ghostty terminal, through pyghostty.

Invariant: the library answers nobody. It has no place to write to: its replies are dropped where they are made, and
none of its doors to the host (clipboard, notifications, files of images) is open.
"""

import re
from functools import cache

from pyghostty import GhosttyError, Terminal, ffi, lib
from pyghostty.core import check

from outlive.machine.backends.screens import ghostty_state as state
from outlive.machine.backends.screens.overlong import PENDING_LIMIT, PIECE, skip_overlong
from outlive.machine.backends.screens.picture import Cell, Pen, Picture, Row, Side, draw, draw_corner
from outlive.machine.terminal.screen import Place

# The library lets whole pages of rows go (about a thousand rows of 80 columns). Asked for fewer rows than fill its
# pages it lets them go one by one, and takes eight times as long for every line that scrolls.
SCROLLBACK_LINES = 2_000
_NO_CONTROLS = dict.fromkeys((*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0)), "\ufffd")
_CANCEL = b"\x18"
# Marks of prompts and commands. The library would act on them: take a prompt away when the size changes, for the shell
# to print it again. No other terminal does, so it is told of a sequence that does nothing in their place.
_MARK = re.compile(rb"\x1b\]133;[^\x07\x18\x1a\x1b]{0,4096}(?:\x07|\x1b\\)")
_MARK_BEGUN = re.compile(rb"\x1b(?:\](?:1(?:3(?:3(?:;[^\x07\x18\x1a\x1b]{0,4096}\x1b?)?)?)?)?)?\Z")
_NOTHING = b"\x1b\\"
_MARK_LIMIT = 4096 + 8
_EXACT_LINES = 16  # of what scrolled out: read cell by cell, to find where a line begins
_IDLE_BYTES = 64 * 1024
_CELL_BYTES = 8


class GhosttyScreens:
    name = "ghostty"

    def __init__(self) -> None:
        self._decode = state.Decoder()
        # The first call of some functions takes 50 ms, to read their declarations. Nobody who attaches waits for that.
        first = self.new(2, 2)
        first.feed(b"x\x1b[?1049h")
        first.text()
        first.draw()
        first.close()

    def new(self, cols: int, rows: int) -> "GhosttyScreen":
        return GhosttyScreen(cols, rows, self._decode)


class GhosttyScreen:
    def __init__(self, cols: int, rows: int, decode: state.Decoder) -> None:
        self.cols, self.rows = cols, rows
        self._decode = decode
        self._terminal = Terminal(cols, rows, SCROLLBACK_LINES)
        self._begun = b""  # how the sequence that is not complete begins
        self._held = b""  # what may become a mark
        self._is_skipping = False  # it has grown over the limit: what is left of it is thrown away
        self._set("CONTINUATION_MAX_BYTES", "size_t", PENDING_LIMIT)
        self._set("KITTY_IMAGE_STORAGE_LIMIT", "uint64_t", 0)

    def _set(self, option: str, ctype: str, value: int) -> None:
        key = getattr(lib, f"GHOSTTY_TERMINAL_OPT_{option}")
        check(lib.ghostty_terminal_set(self._handle, key, ffi.new(ctype + "*", value)), option)

    @property
    def _handle(self) -> state.Handle:
        return self._terminal._t[0]

    @property
    def title(self) -> str:
        return state.title(self._handle)

    @property
    def cursor(self) -> Place:
        col, row = self._terminal.cursor
        return Place(row, col)

    @property
    def is_alternate(self) -> bool:
        return state.is_alternate(self._handle)

    @property
    def size_bytes(self) -> int:
        rows = int(state.get(self._handle, "TOTAL_ROWS", "size_t"))
        return _IDLE_BYTES + rows * self.cols * _CELL_BYTES

    def feed(self, data: bytes) -> None:
        data = _MARK.sub(lambda _: _NOTHING, self._held + data)
        begun = _MARK_BEGUN.search(data, max(0, len(data) - _MARK_LIMIT))
        self._held = begun[0] if begun else b""
        data = data.removesuffix(self._held)
        start = 0
        while start < len(data):
            if self._is_skipping:
                after = skip_overlong(self._begun, data, start)
                self._is_skipping = after is None
                start = len(data) if after is None else after
                continue
            state.write(self._handle, data[start : start + PIECE])
            start += PIECE
            if not state.get(self._handle, "VT_GROUND", "bool"):
                self._look_at_pending()
        if self._terminal.size != (self.cols, self.rows):  # a program asked for 132 columns; the PTY has its own
            self._terminal.resize(self.cols, self.rows)

    def _look_at_pending(self) -> None:
        pending = state.pending(self._handle)
        if pending is None:
            state.write(self._handle, _CANCEL)
            self._is_skipping = True
        else:
            self._begun = pending[:2]

    def resize(self, cols: int, rows: int) -> None:
        self.cols, self.rows = cols, rows
        self._terminal.resize(cols, rows)

    def text(self) -> str:
        lines = [line.rstrip(" ") for line in self._terminal.text().split("\n")]
        return "\n".join(lines).rstrip("\n").translate(_NO_CONTROLS)

    def draw(self, *, has_history: bool = True) -> bytes:
        return draw(self._picture(), has_history=has_history)

    def corner(self, cols: int, rows: int) -> list[bytes]:
        return draw_corner(state.rows(self._handle, self._decode, history=0), cols, rows)

    def close(self) -> None:
        self._terminal.close()

    def _picture(self) -> Picture:
        handle = self._handle
        fresh = _fresh_modes()
        main, alternate = self._sides()
        return Picture(
            self.cols,
            self.rows,
            main,
            alternate,
            state.alternate_mode(handle),
            state.pen(handle),
            state.margins(handle),
            state.tabs(handle),
            [sequence for mode, sequence in state.modes(handle).items() if sequence != fresh[mode]],
            self.title,
            state.mode(handle, 2027),
            state.mode(handle, 4, is_ansi=True),
            (self._begun if self._is_skipping else state.pending(handle) or b"") + self._held,
        )

    def _sides(self) -> tuple[Side, Side | None]:
        seen = self._side(self._handle)
        try:
            return self._tried(seen)
        except GhosttyError:  # the library does not copy itself in the middle of some broken sequences
            return (Side([Row([Cell("")])] * self.rows, Pen()), seen) if self.is_alternate else (seen, None)

    def _tried(self, seen: Side) -> tuple[Side, Side | None]:
        """What cannot be asked for is tried on a copy: where the saved cursor is, what the alternate screen covers."""
        is_alternate = self.is_alternate
        with state.copied(self._handle, is_whole=is_alternate) as copy:
            state.write(copy, _CANCEL)
            seen = seen._replace(saved=state.saved_pen(copy))
            if not is_alternate:
                return seen, None
            state.write(copy, b"\x1b[?47l")
            return self._side(copy)._replace(saved=state.saved_pen(copy)), seen

    def _side(self, handle: state.Handle) -> Side:
        rows = state.rows(handle, self._decode, history=_EXACT_LINES)
        exact = len(rows) - self.rows  # of those that scrolled out
        scrolled = state.get(handle, "SCROLLBACK_ROWS", "size_t")
        if scrolled == exact:
            return Side(rows, Pen(), keyboard=state.keyboard(handle))
        split = next((i for i in range(1, exact + 1) if _ends_line(rows[i - 1])), 1)
        last, rows = rows[split - 1], rows[split:]
        above = state.scrolled_out(handle, scrolled - exact + split)
        is_wrapped = last.is_wrapped and bool(last.cells[-1].text)
        return Side(rows, Pen(), above, is_wrapped, state.keyboard(handle))


def _ends_line(row: Row) -> bool:
    """The library's drawing of all up to here ends with something, and a new line begins after it."""
    return not row.is_wrapped and any(not cell.text.isspace() for cell in row.cells if cell.text)


@cache
def _fresh_modes() -> dict[str, str]:
    with Terminal(80, 24, 0) as fresh:
        return state.modes(fresh._t[0])
