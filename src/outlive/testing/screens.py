"""What every engine of screen models promises: subclass `ScreensContract` and give it a `screens` fixture.

How the bytes are cut, when somebody attaches and how the size changes is made up by Hypothesis, in bounds that keep a
whole suite under 15 s. Unfinished sequences and characters come from the cuts.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlive.machine.terminal.screen import Place, Screen, Screens
from outlive.testing.terminal_sessions import ANSWERING_MODES, HARMLESS, HOSTILE, PIECES, SESSIONS

COLS, ROWS = 40, 10
_SETTINGS = settings(
    max_examples=60,
    deadline=None,  # the machine may be busy
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)

_SIZES = st.tuples(st.integers(12, 70), st.integers(3, 16))
_OUTPUT = st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join) | st.sampled_from(sorted(SESSIONS.values()))
_CUT = st.floats(0, 1)


class Seen(NamedTuple):
    text: str
    cursor: Place
    is_alternate: bool
    title: str


def seen(screen: Screen) -> Seen:
    return Seen(screen.text(), screen.cursor, screen.is_alternate, screen.title)


def redrawn(screens: Screens, screen: Screen) -> Screen:
    """What somebody sees who attaches now."""
    fresh = screens.new(screen.cols, screen.rows)
    fresh.feed(screen.draw())
    return fresh


def fed(screens: Screens, *parts: bytes, cols: int = COLS, rows: int = ROWS) -> Screen:
    screen = screens.new(cols, rows)
    for part in parts:
        screen.feed(part)
    return screen


def _cut(data: bytes, shares: Sequence[float]) -> list[bytes]:
    places = [0, *sorted(round(share * len(data)) for share in shares), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


class ScreensContract:
    @pytest.fixture
    def screens(self) -> Screens:
        raise NotImplementedError

    @pytest.mark.parametrize("name", SESSIONS)
    def test_a_drawing_shows_the_same_with_all_colours_and_modes(self, screens: Screens, name: str) -> None:
        screen = fed(screens, SESSIONS[name])
        fresh = redrawn(screens, screen)
        assert seen(fresh) == seen(screen)
        assert fresh.draw() == screen.draw()

    @given(output=_OUTPUT, size=_SIZES)
    @_SETTINGS
    def test_a_drawing_shows_the_same_at_any_size(self, screens: Screens, output: bytes, size: tuple[int, int]) -> None:
        screen = fed(screens, output, cols=size[0], rows=size[1])
        assert seen(redrawn(screens, screen)) == seen(screen)

    @given(output=_OUTPUT | st.binary(max_size=300), shares=st.lists(_CUT, max_size=8))
    @_SETTINGS
    def test_how_the_output_is_cut_changes_nothing(self, screens: Screens, output: bytes, shares: list[float]) -> None:
        whole, cut = fed(screens, output), fed(screens, *_cut(output, shares))
        assert seen(cut) == seen(whole)
        assert cut.draw() == whole.draw()

    @given(output=_OUTPUT, share=_CUT)
    @_SETTINGS
    def test_who_attaches_at_any_byte_sees_what_follows_as_all_others(
        self, screens: Screens, output: bytes, share: float
    ) -> None:
        before, after = _cut(output, [share])
        screen = fed(screens, before)
        late = redrawn(screens, screen)
        assert seen(late) == seen(screen)
        screen.feed(after)
        late.feed(after)
        assert seen(late) == seen(screen)

    @given(output=_OUTPUT, shares=st.tuples(_CUT, _CUT, _CUT), sizes=st.tuples(_SIZES, _SIZES))
    @_SETTINGS
    def test_who_attaches_between_resizes_sees_the_same_after_the_next(
        self, screens: Screens, output: bytes, shares: tuple[float, ...], sizes: tuple[tuple[int, int], ...]
    ) -> None:
        first, second, third, last = _cut(output, shares)
        screen = fed(screens, first)
        screen.resize(*sizes[0])
        screen.feed(second)
        late = redrawn(screens, screen)
        assert seen(late) == seen(screen)
        for each in (screen, late):
            each.feed(third)
            each.resize(*sizes[1])
        assert (late.cols, late.rows) == (screen.cols, screen.rows) == sizes[1]
        assert seen(late) == seen(screen)
        for each in (screen, late):
            each.feed(last)
        assert seen(late) == seen(screen)

    @pytest.mark.parametrize("name", SESSIONS)
    def test_a_drawing_without_history_shows_the_same_and_scrolls_nothing_out(
        self, screens: Screens, name: str
    ) -> None:
        screen = fed(screens, SESSIONS[name])
        drawn = screen.draw(has_history=False)
        assert seen(fed(screens, drawn)) == seen(screen)
        assert drawn == fed(screens, drawn).draw(), "there is no more to draw than what is seen"

    def test_a_corner_shows_the_cells_that_fit_and_no_others(self, screens: Screens) -> None:
        screen = fed(screens, "long line\r\n日本\x1b[7mx".encode(), cols=12, rows=3)
        window = fed(screens, b"", cols=3, rows=2)
        for number, row in enumerate(screen.corner(3, 2)):
            window.feed(b"\x1b[%d;1H" % (number + 1) + row)
        assert window.text() == "lon\n日"
        assert len(screen.corner(20, 9)) == 3
        wide = fed(screens, b"\r\n".join(screen.corner(20, 9)), cols=21, rows=3)
        assert wide.text() == screen.text()

    def test_soft_wrapped_lines_of_a_drawing_follow_a_new_size(self, screens: Screens) -> None:
        screen = fed(screens, b"$ " + b"w" * 70 + b" end\r\n$ ")
        late = redrawn(screens, screen)
        for each in (screen, late):
            each.resize(30, ROWS)
        assert seen(late) == seen(screen)
        assert screen.text().split("\n") == ["$ " + "w" * 28, "w" * 30, "w" * 12 + " end", "$"]

    def test_what_the_alternate_screen_covers_is_drawn_too(self, screens: Screens) -> None:
        screen = fed(screens, b"one\r\ntwo\x1b[31m\x1b[?1049h\x1b[Hfull screen")
        late = redrawn(screens, screen)
        assert (late.is_alternate, late.text()) == (True, "full screen")
        late.feed(b"\x1b[?1049l and three")
        assert (late.is_alternate, late.text(), late.cursor) == (False, "one\ntwo and three", Place(1, 13))

    def test_empty_rows_below_the_cursor_stay_empty(self, screens: Screens) -> None:
        screen = fed(screens, b"\r\n" * 30 + b"\x1b[3;1Hhere")
        assert redrawn(screens, screen).text() == screen.text() == "\n\nhere"

    @pytest.mark.parametrize(
        ("begun", "end", "shown"),
        [
            (b"\x1b[3", b"1mred", "red"),
            ("漢".encode()[:2], "漢".encode()[2:], "漢"),
            (b"\x1b]2;a ti", b"tle\x07x", "x"),
            (b"\x1b]133;", b"C\x07y", "y"),
            (b"\x1b", b"[5Cz", "     z"),
            (b"\x1bP+q54", b"4e\x1b\\p", "p"),
            (b"-", b"\x1b[4b", "-----"),
            (b"\x1b[4", b"\x182m", "2m"),
        ],
    )
    def test_what_is_not_complete_is_completed_by_what_follows(
        self, screens: Screens, begun: bytes, end: bytes, shown: str
    ) -> None:
        late = redrawn(screens, fed(screens, begun))
        late.feed(end)
        assert late.text() == shown

    @pytest.mark.parametrize("hostile", HOSTILE, ids=repr)
    def test_a_drawing_asks_for_nothing_and_does_no_harm(self, screens: Screens, hostile: bytes) -> None:
        for output in (hostile, b"\x1b[?1049h" + hostile, b"before " + hostile + b" after\r\n" * 50):
            drawn = fed(screens, output).draw()
            assert not ANSWERING_MODES.search(drawn)
            rest = HARMLESS.sub(b"", drawn).decode()
            assert rest == "" or all(char == " " or char.isprintable() for char in rest)

    def test_a_title_holds_no_control_character(self, screens: Screens) -> None:
        screen = fed(screens, "\x1b]2;a\tb\u009bc d\x07".encode())
        assert screen.title.isprintable()
        assert redrawn(screens, screen).title == screen.title
        assert fed(screens, b"text").title == ""

    def test_no_output_changes_the_size(self, screens: Screens) -> None:
        screen = fed(screens, b"\x1b[?40h\x1b[?3h\x1b[8;50;200t\x1b[132$|\x1b[50t\x1b[30*|ok")
        assert (screen.cols, screen.rows) == (COLS, ROWS)
        assert redrawn(screens, screen).text() == screen.text()

    @pytest.mark.parametrize(("begin", "end"), [(b"\x1b]2;", b"\x07"), (b"\x1bPq", b"\x1b\\"), (b"\x1b[", b"m")])
    def test_a_sequence_without_end_is_not_kept(self, screens: Screens, begin: bytes, end: bytes) -> None:
        screen = fed(screens, b"shown" + begin, *[b"1" * 50_000] * 20)
        assert len(screen.draw()) < 100_000
        late = redrawn(screens, screen)
        for each in (screen, late):
            each.feed(b"1" * 1000 + end + b" again")
            assert each.text() == "shown again"

    @given(output=st.binary(max_size=400), size=st.tuples(st.integers(1, 30), st.integers(1, 8)))
    @_SETTINGS
    def test_whatever_is_printed_at_whatever_size_is_taken(
        self, screens: Screens, output: bytes, size: tuple[int, int]
    ) -> None:
        screen = fed(screens, output, cols=size[0], rows=size[1])
        screen.resize(size[1], size[0])
        screen.feed(output)
        assert len(screen.text().split("\n")) <= size[0]
        assert screen.draw()
        screen.close()

    def test_a_hundred_idle_screens_take_less_than_100_mb(self, screens: Screens) -> None:
        before = _resident_bytes()
        kept = [fed(screens, SESSIONS["shell with marks"], cols=80, rows=24) for _ in range(100)]
        assert _resident_bytes() - before < 100 * 1024 * 1024
        assert all(0 < screen.size_bytes < 1024 * 1024 for screen in kept)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
