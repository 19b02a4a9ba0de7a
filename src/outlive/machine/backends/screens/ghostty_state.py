"""Reading a libghostty terminal: its cells, its cursor, its modes. Nothing here changes what it shows.

Invariant: whatever the library hands out is copied before the terminal is touched again, and freed by us.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

from pyghostty import ffi, lib
from pyghostty.core import check, init_sized

from outlive.machine.backends.screens.picture import PLAIN, Cell, Margins, Pen, Row

# Modes that a drawing carries over. Left out are those that it sets by itself (4, 6, 69, 2027, the alternate screen's),
# that change the size (3, 40) or answer when set (2048), and the hold of a frame (2026), which ends by itself.
_KEYS_AND_LOOK = (1, 5, 7, 8, 9, 12, 25, 45, 66, 1035, 1036, 1039, 1045, 2004, 2031)
_DEC_MODES = (*_KEYS_AND_LOOK, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016)
_ANSI_MODES = (2, 12, 20)
_ALTERNATE_MODES = (1049, 1047, 47)

_CELL_TEXT, _CELL_GRAPHEME, _CELL_PALETTE, _CELL_RGB = range(4)
_WIDTHS = (1, 2, 0, 1)  # narrow, wide, what a wide one covers, the last column where none fitted
_ATTRIBUTES = {"bold": "1", "faint": "2", "italic": "3", "blink": "5"}
_ATTRIBUTES |= {"inverse": "7", "invisible": "8", "strikethrough": "9", "overline": "53"}
_ROWS = re.compile(r"\x1b\[(\d+);(\d+)r")
_NO_CONTROLS = dict.fromkeys(range(0x7F, 0xA0), "\ufffd")
_USUAL_CHARSETS = re.compile(r"\x1b[()*+]B")
_COLS = re.compile(r"\x1b\[(\d+);(\d+)s")

Handle = Any  # GhosttyTerminal


class Decoded(NamedTuple):
    """What a raw cell says of itself."""

    cell: Cell
    style: int  # 0: none but what is in the cell already
    is_grapheme: bool


def _decoded(raw: int) -> Decoded:
    def of(key: str, ctype: str) -> Any:
        return _get(partial(lib.ghostty_cell_get, raw), f"GHOSTTY_CELL_DATA_{key}", ctype)

    tag = of("CONTENT_TAG", "GhosttyCellContentTag")
    codepoint = of("CODEPOINT", "uint32_t") if tag in (_CELL_TEXT, _CELL_GRAPHEME) else 0
    sgr = PLAIN
    if tag == _CELL_PALETTE:
        sgr = f"\x1b[0;48;5;{of('COLOR_PALETTE', 'GhosttyColorPaletteIndex')}m"
    elif tag == _CELL_RGB:
        rgb = of("COLOR_RGB", "GhosttyColorRgb")
        sgr = f"\x1b[0;48;2;{rgb.r};{rgb.g};{rgb.b}m"
    width = _WIDTHS[of("WIDE", "GhosttyCellWide")]
    text = _shown(codepoint) if codepoint else ""
    if text == " ":
        text = " " * width  # what a charset has no character for is a blank, wide if it was
    cell = Cell(text, sgr, width)
    return Decoded(cell, of("STYLE_ID", "GhosttyStyleId"), tag == _CELL_GRAPHEME)


def _shown(codepoint: int) -> str:
    """Control characters never get into a drawing, even if the library keeps one in a cell."""
    return "\ufffd" if codepoint < 0x20 or 0x7F <= codepoint < 0xA0 else chr(codepoint)


class Decoder:
    """Keeps what raw cells say: few differ, and asking the library costs more than all else. Bounded: a hostile screen
    has as many values as cells."""

    LIMIT = 20_000

    def __init__(self) -> None:
        self._known: dict[int, Decoded] = {}

    def __call__(self, raw: int) -> Decoded:
        known = self._known.get(raw)
        if known is None:
            if len(self._known) >= self.LIMIT:
                self._known.clear()
            known = self._known[raw] = _decoded(raw)
        return known


@cache
def _template(ctype: str) -> Any:
    return init_sized(ctype)


def _sized(ctype: str) -> Any:
    """A struct that says its own size, as the library wants it."""
    return ffi.new(ctype + "*", _template(ctype)[0])


def _get(call: Callable[[int, Any], int], key: str, ctype: str) -> Any:
    out = ffi.new(ctype + "*")
    check(call(getattr(lib, key), out), key)
    return out[0]


def get(handle: Handle, key: str, ctype: str) -> Any:
    return _get(partial(lib.ghostty_terminal_get, handle), f"GHOSTTY_TERMINAL_DATA_{key}", ctype)


def is_alternate(handle: Handle) -> bool:
    active = get(handle, "ACTIVE_SCREEN", "GhosttyTerminalScreen")
    return bool(active == lib.GHOSTTY_TERMINAL_SCREEN_ALTERNATE)


def title(handle: Handle) -> str:
    found = get(handle, "TITLE", "GhosttyString")
    raw = ffi.buffer(found.ptr, found.len)[:] if found.len else b""
    return "".join(char for char in raw.decode(errors="replace") if char.isprintable())


def pending(handle: Handle) -> bytes | None:
    """What is not complete yet; None if that has grown over the bound."""
    written = ffi.new("size_t*")
    result = lib.ghostty_terminal_continuation_buf(handle, ffi.NULL, 0, written)
    if result == lib.GHOSTTY_SUCCESS:
        return b""
    if result != lib.GHOSTTY_OUT_OF_SPACE:
        return None
    buffer = ffi.new("uint8_t[]", written[0])
    check(lib.ghostty_terminal_continuation_buf(handle, buffer, len(buffer), written), "continuation")
    return bytes(ffi.buffer(buffer, written[0]))


@contextmanager
def copied(handle: Handle, *, is_whole: bool) -> Iterator[Handle]:
    """Another terminal in the same state, to try things on; if not whole, without what scrolled out."""
    data, size = ffi.new("uint8_t**"), ffi.new("size_t*")
    check(lib.ghostty_snapshot_encode_alloc(handle, ffi.NULL, data, size), "snapshot_encode")
    decoder, copy = ffi.new("GhosttySnapshotDecoder*"), ffi.new("GhosttyTerminal*")
    try:
        check(lib.ghostty_snapshot_decoder_new_buf(ffi.NULL, decoder, data[0], size[0]), "snapshot_decoder")
        try:
            decode = lib.ghostty_snapshot_decoder_decode if is_whole else lib.ghostty_snapshot_decoder_ready
            check(decode(decoder[0], copy), "snapshot_decode")
        finally:
            lib.ghostty_snapshot_decoder_free(decoder[0])
    finally:
        lib.ghostty_free(ffi.NULL, data[0], size[0])
    try:
        yield copy[0]
    finally:
        lib.ghostty_terminal_free(copy[0])


def write(handle: Handle, data: bytes) -> None:
    lib.ghostty_terminal_vt_write(handle, data, len(data))


@contextmanager
def _render_state(handle: Handle, history: int) -> Iterator[Any]:
    state = ffi.new("GhosttyRenderState*")
    check(lib.ghostty_render_state_new(ffi.NULL, state), "render_state")
    try:
        overscan = ffi.new("GhosttyRenderStateOverscan*", {"above": history})
        check(lib.ghostty_render_state_set(state[0], lib.GHOSTTY_RENDER_STATE_OPTION_OVERSCAN, overscan), "overscan")
        check(lib.ghostty_render_state_update(state[0], handle), "render_state_update")
        yield state[0]
    finally:
        lib.ghostty_render_state_free(state[0])


def rows(handle: Handle, decode: Decoder, *, history: int) -> list[Row]:
    """Of the active screen, and up to so many that scrolled out of it, oldest first."""
    iterator = ffi.new("GhosttyRenderStateRowIterator*")
    with _render_state(handle, history) as rendered:
        check(lib.ghostty_render_state_row_iterator_new(ffi.NULL, iterator), "row_iterator")
        try:
            key = lib.GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR
            check(lib.ghostty_render_state_get(rendered, key, iterator), "rows")
            return list(_rows(iterator[0], decode))
        finally:
            lib.ghostty_render_state_row_iterator_free(iterator[0])


def _rows(iterator: Any, decode: Decoder) -> Iterator[Row]:
    cells = ffi.new("GhosttyRenderStateRowCells*")
    check(lib.ghostty_render_state_row_cells_new(ffi.NULL, cells), "row_cells")
    view, raw = ffi.new("GhosttyCellsView*"), ffi.new("GhosttyRow*")
    row_get = partial(lib.ghostty_render_state_row_get, iterator)
    try:
        while lib.ghostty_render_state_row_iterator_next(iterator):
            check(row_get(lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW, view), "cells_raw")
            check(row_get(lib.GHOSTTY_RENDER_STATE_ROW_DATA_RAW, raw), "row")
            check(row_get(lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS, cells), "cells")
            values = memoryview(ffi.buffer(view.ptr, view.len * 8)).cast("Q").tolist()
            is_wrapped = _get(partial(lib.ghostty_row_get, raw[0]), "GHOSTTY_ROW_DATA_WRAP", "bool")
            yield Row(_cells(values, decode, cells[0]), is_wrapped)
    finally:
        lib.ghostty_render_state_row_cells_free(cells[0])


def _cells(values: list[int], decode: Decoder, cells: Any) -> list[Cell]:
    found: list[Cell] = []
    seen: dict[int, Cell] = {}  # styles are numbered anew in each part of the screen, so for this row only
    for at, raw in enumerate(values):
        cell = seen.get(raw)
        if cell is None:
            cell, style, is_grapheme = decode(raw)
            if style:
                cell = Cell(cell.text, _style(cells, at), cell.width)
            if is_grapheme:
                cell = Cell(_grapheme(cells, at), cell.sgr, cell.width)
            else:
                seen[raw] = cell
        if cell.width:
            found.append(cell)
    return found


def _style(cells: Any, at: int) -> str:
    check(lib.ghostty_render_state_row_cells_select(cells, at), "select")
    style = _sized("GhosttyStyle")
    key = lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_STYLE
    check(lib.ghostty_render_state_row_cells_get(cells, key, style), "style")
    return _sgr(style)


def _sgr(style: Any) -> str:
    parameters = ["0"] + [code for name, code in _ATTRIBUTES.items() if getattr(style, name)]
    if style.underline:
        parameters.append("4" if style.underline == 1 else f"4:{style.underline}")
    for code, color in (("38", style.fg_color), ("48", style.bg_color), ("58", style.underline_color)):
        if color.tag == lib.GHOSTTY_STYLE_COLOR_PALETTE:
            parameters.append(f"{code};5;{color.value.palette}")
        elif color.tag == lib.GHOSTTY_STYLE_COLOR_RGB:
            rgb = color.value.rgb
            parameters.append(f"{code};2;{rgb.r};{rgb.g};{rgb.b}")
    return f"\x1b[{';'.join(parameters)}m"


def _grapheme(cells: Any, at: int) -> str:
    check(lib.ghostty_render_state_row_cells_select(cells, at), "select")
    cells_get = partial(lib.ghostty_render_state_row_cells_get, cells)
    count = _get(cells_get, "GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_LEN", "uint32_t")
    codepoints = ffi.new("uint32_t[]", count)
    check(cells_get(lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_BUF, codepoints), "graphemes")
    return "".join(_shown(codepoint) for codepoint in codepoints)


def pen(handle: Handle) -> Pen:
    style = _sized("GhosttyStyle")
    check(lib.ghostty_terminal_get(handle, lib.GHOSTTY_TERMINAL_DATA_CURSOR_STYLE, style), "cursor_style")
    return Pen(
        get(handle, "CURSOR_Y", "uint16_t"),
        get(handle, "CURSOR_X", "uint16_t"),
        is_past_end=get(handle, "CURSOR_PENDING_WRAP", "bool"),
        sgr=_sgr(style),
        charsets=_USUAL_CHARSETS.sub("", _extra(handle, "charsets")),
        is_origin=mode(handle, 6),
    )


def saved_pen(copy: Handle) -> Pen:
    """What the copy is changed to by this."""
    write(copy, b"\x1b8")
    return pen(copy)


def margins(handle: Handle) -> Margins:
    region = _extra(handle, "scrolling_region")
    above, aside = _ROWS.search(region), _COLS.search(region)
    has_sides = mode(handle, 69)
    cols = get(handle, "COLS", "uint16_t")
    return Margins(
        (int(above[1]) - 1, int(above[2]) - 1) if above else None,
        ((int(aside[1]) - 1, int(aside[2]) - 1) if aside else (0, cols - 1)) if has_sides else None,
    )


def tabs(handle: Handle) -> str:
    return _extra(handle, "tabstops")


def keyboard(handle: Handle) -> str:
    return _extra(handle, "kitty_keyboard")


def alternate_mode(handle: Handle) -> int:
    return next((number for number in _ALTERNATE_MODES if mode(handle, number)), 1049)


def modes(handle: Handle) -> dict[str, str]:
    """By mode, the sequence that makes it as it is here."""
    found = {f"?{n}": f"\x1b[?{n}{'h' if mode(handle, n) else 'l'}" for n in _DEC_MODES}
    found |= {f"{n}": f"\x1b[{n}{'h' if mode(handle, n, is_ansi=True) else 'l'}" for n in _ANSI_MODES}
    found["keypad"] = "\x1b=" if mode(handle, 66) else "\x1b>"
    found["shape"] = _shape(handle)
    found["keyboard"] = _extra(handle, "keyboard")
    found["protection"] = _extra(handle, "protection")
    return found


def _shape(handle: Handle) -> str:
    """Of the cursor."""
    with _render_state(handle, 0) as rendered:
        found = partial(lib.ghostty_render_state_get, rendered)
        look = _get(found, "GHOSTTY_RENDER_STATE_DATA_CURSOR_VISUAL_STYLE", "GhosttyRenderStateCursorVisualStyle")
    steady = {
        lib.GHOSTTY_RENDER_STATE_CURSOR_VISUAL_STYLE_UNDERLINE: 4,
        lib.GHOSTTY_RENDER_STATE_CURSOR_VISUAL_STYLE_BAR: 6,
    }.get(look, 2)
    return f"\x1b[{steady - mode(handle, 12)} q"


def mode(handle: Handle, number: int, *, is_ansi: bool = False) -> bool:
    config = ffi.new("GhosttyTerminalModeConfig*")
    config.mode = number | (is_ansi << 15)
    check(lib.ghostty_terminal_get(handle, lib.GHOSTTY_TERMINAL_DATA_MODE, config), f"mode {number}")
    return bool(config.value)


_SCREEN_EXTRAS = frozenset(("cursor", "style", "hyperlink", "protection", "kitty_keyboard", "charsets"))


def _extra(handle: Handle, name: str) -> str:
    """One piece of the library's own drawing: that of one cell, with and without the piece, differs by it."""
    corner = _ref(handle, 0)
    without, within = _formatted(handle, corner, corner), _formatted(handle, corner, corner, name)
    return within.removesuffix(without) if within.endswith(without) else within.removeprefix(without)


def scrolled_out(handle: Handle, count: int) -> str:
    """The oldest rows, drawn by the library: fast, but without colours behind nothing and empty rows at the end."""
    cols = get(handle, "COLS", "uint16_t")
    return _formatted(handle, _ref(handle, 0, is_active=False), _ref(handle, count - 1, cols - 1, is_active=False))


def _formatted(handle: Handle, start: Any, end: Any, extra: str | None = None) -> str:
    options, selection = _sized("GhosttyFormatterTerminalOptions"), _sized("GhosttySelection")
    options.emit, options.unwrap = lib.GHOSTTY_FORMATTER_FORMAT_VT, True
    if extra:
        setattr(options.extra.screen if extra in _SCREEN_EXTRAS else options.extra, extra, True)
    selection.start, selection.end = start[0], end[0]
    options.selection = selection
    formatter, data, size = ffi.new("GhosttyFormatter*"), ffi.new("uint8_t**"), ffi.new("size_t*")
    check(lib.ghostty_formatter_terminal_new(ffi.NULL, formatter, handle, options[0]), "formatter")
    try:
        check(lib.ghostty_formatter_format_alloc(formatter[0], ffi.NULL, data, size), "format")
        drawn = bytes(ffi.buffer(data[0], size[0]))
        lib.ghostty_free(ffi.NULL, data[0], size[0])
        return drawn.decode(errors="replace").translate(_NO_CONTROLS)
    finally:
        lib.ghostty_formatter_free(formatter[0])


# The library takes a point as a union by value, which cffi cannot pass; a struct of the same layout is passed alike.
_grid_ref = ffi.cast(
    "GhosttyResult(*)(GhosttyTerminal, GhosttyPointS, GhosttyGridRef*)", ffi.addressof(lib, "ghostty_terminal_grid_ref")
)


def _ref(handle: Handle, row: int, col: int = 0, *, is_active: bool = True) -> Any:
    """To a cell of the active screen, or of all rows, the oldest first."""
    point = ffi.new("GhosttyPointS*")
    point.tag = lib.GHOSTTY_POINT_TAG_ACTIVE if is_active else lib.GHOSTTY_POINT_TAG_SCREEN
    point.value.x, point.value.y = col, row
    found = _sized("GhosttyGridRef")
    check(_grid_ref(handle, point[0], found), "grid_ref")
    return found
