"""A remote screen in a window of another size: what is drawn there is what the remote screen shows, cut."""

from collections.abc import Iterator, Sequence

import pytest

from outlive.cli.letterbox import Letterbox
from outlive.wiring.screens import open_screens
from security.operator_terminal import OperatorTerminal

SCREENS = open_screens()


@pytest.fixture(params=[(20, 5), (200, 60), (100, 10)], ids=str)
def window(request: pytest.FixtureRequest) -> Iterator[tuple[OperatorTerminal, Letterbox]]:
    cols, rows = request.param
    terminal, box = OperatorTerminal(cols, rows), Letterbox(SCREENS.new(80, 24), cols, rows)
    yield terminal, box
    box.close()
    terminal.close()


def _expected(steps: Sequence[bytes], cols: int, rows: int) -> list[str]:
    remote, top = SCREENS.new(80, 24), 0
    for step in steps:
        remote.feed(step)
        row, _ = remote.cursor
        while row < top:
            top -= 1
        while row >= top + rows:
            top += 1
    lines = [line[:cols].rstrip() for line in remote.text().split("\n")][top : top + rows]
    remote.close()
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _seen(terminal: OperatorTerminal) -> list[str]:
    return [line.rstrip() for line in terminal.text.rstrip("\n").split("\n")]


def test_a_window_shows_what_fits_of_a_screen_as_it_changes(window: tuple[OperatorTerminal, Letterbox]) -> None:
    terminal, box = window
    cols, rows = terminal.size
    steps: list[bytes] = []
    for step in (
        b"$ " + b"a long line that wraps at the remote edge " * 4 + b"\r\n",
        b"\x1b[3;1Hthird \x1b[31mrow\x1b[m\x1b[24;70Hcorner",
        b"\x1b[2J\x1b[H" + b"".join(b"row %d\r\n" % n for n in range(40)),
        b"\x1b[?1049h\x1b[2;3Halternate\x1b[6n\x1b]52;c;eA==\x07",
        b"\x1b[?1049l",
    ):
        steps.append(step)
        box.feed(step)
        terminal.feed(box.paint())
        assert _seen(terminal) == (_expected(steps, cols, rows) or [""])
    assert (terminal.answers, terminal.effects) == ([], [])


def test_the_row_where_things_happen_is_always_seen(window: tuple[OperatorTerminal, Letterbox]) -> None:
    terminal, box = window
    for step, seen in (
        (b"".join(b"row %d\r\n" % n for n in range(1, 24)) + b"$ make", "$ make"),
        (b"\x1b[Htop", "top"),
        (b"\x1b[24;1H$ done", "$ done"),
    ):
        box.feed(step)
        terminal.feed(box.paint())
        assert any(line.startswith(seen) for line in _seen(terminal))


def test_what_was_covered_is_drawn_again(window: tuple[OperatorTerminal, Letterbox]) -> None:
    terminal, box = window
    box.feed(b"hello")
    terminal.feed(box.paint())
    terminal.feed(b"\x1b[2J")
    terminal.feed(box.paint())
    assert _seen(terminal) == [""], "nothing has changed, and nothing is drawn"
    box.forget()
    terminal.feed(box.paint())
    assert _seen(terminal) == ["hello"]
