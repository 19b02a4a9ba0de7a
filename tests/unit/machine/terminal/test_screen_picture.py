"""A drawing is made from a picture alone: what is in it, in the order that lets a terminal end up in that state."""

from outlive.machine.backends.screens.overlong import skip_overlong
from outlive.machine.backends.screens.picture import PLAIN, Cell, Margins, Pen, Picture, Row, Side, draw

RED = "\x1b[0;31m"
BLUE_BEHIND = "\x1b[0;44m"
HOME = Pen()
NO_MARGINS = Margins()


def _row(text: str, cols: int = 6, *, sgr: str = PLAIN, is_wrapped: bool = False) -> Row:
    return Row([Cell(char, sgr) for char in text] + [Cell("")] * (cols - len(text)), is_wrapped)


def _picture(*rows: Row, pen: Pen = HOME, alternate: Side | None = None, margins: Margins = NO_MARGINS) -> Picture:
    return Picture(
        6,
        len(rows),
        Side(rows, Pen()),
        alternate,
        1049,
        pen,
        margins,
        tabs="",
        modes=["\x1b[?25l"],
        title="",
        is_clustering=False,
        is_inserting=False,
        pending=b"",
    )


def test_a_line_that_goes_on_is_drawn_without_a_line_break() -> None:
    drawn = draw(_picture(_row("abcdef", is_wrapped=True), _row("gh"), _row("i")))
    assert b"abcdefgh" in drawn
    assert b"\r\ni" in drawn


def test_a_line_break_is_drawn_for_every_empty_row_below() -> None:
    assert draw(_picture(_row("a"), _row(""), _row(""))).count(b"\r\n") == 2


def test_colour_behind_nothing_is_drawn_without_printing() -> None:
    row = Row([Cell("a"), *[Cell("", BLUE_BEHIND)] * 3, Cell(""), Cell("b", RED)])
    assert b"a\x1b[0;44m\x1b[3X\x1b[3C\x1b[1C\x1b[0;31mb" in draw(_picture(row))


def test_what_stands_before_the_cursor_is_printed_last_and_the_unfinished_bytes_after_it() -> None:
    picture = _picture(_row("ab"), pen=Pen(0, 2))._replace(pending=b"\x1b[3", title="t")
    assert draw(picture).endswith(b"\x1b[1;2Hb\x1b[3")


def test_what_would_change_the_last_character_comes_after_it() -> None:
    picture = _picture(_row("ab"), pen=Pen(0, 2, charsets="\x1b(0"))._replace(is_inserting=True)
    assert draw(picture).endswith(b"b\x1b(0\x1b[4h")


def test_a_cursor_past_the_end_is_there_by_printing_the_last_column_once_more() -> None:
    row = Row([*[Cell("x")] * 4, Cell("漢", RED, 2)])
    assert draw(_picture(row, pen=Pen(0, 5, is_past_end=True))).endswith("\x1b[1;5H\x1b[0;31m漢\x1b[0m".encode())


def test_a_cursor_in_margins_is_counted_from_them() -> None:
    pen, margins = Pen(2, 0, is_origin=True), Margins(rows=(1, 2))
    assert draw(_picture(*[_row("")] * 4, pen=pen, margins=margins)).endswith(b"\x1b[2;3r\x1b[?6h\x1b[2;1H")


def test_the_screen_behind_is_drawn_before_the_change_to_the_alternate_one() -> None:
    drawn = draw(_picture(_row("main"), alternate=Side([_row("alter")], Pen())))
    assert drawn.index(b"main") < drawn.index(b"\x1b[?1049h") < drawn.index(b"alter")


def test_a_sequence_too_long_is_skipped_to_its_end_and_not_further() -> None:
    assert skip_overlong(b"\x1b]", b"rest\x07after", 0) == 5
    assert skip_overlong(b"\x1b]", b"rest\x1b\\after", 0) == 4
    assert skip_overlong(b"\x1bP", b"a\x07b\x18c", 0) == 4
    assert skip_overlong(b"\x1b[", b"1;1;1mx", 0) == 6
    assert skip_overlong(b"\x1b_", b"no end", 0) is None
