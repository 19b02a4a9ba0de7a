"""A screen whose engine fails goes on with a fresh one, with the other engine, or empty; nobody hears of it but the
log."""

import logging

import pytest

from outlive.machine.backends.screens.bittty import BitttyScreen, BitttyScreens
from outlive.machine.backends.screens.sturdy import SturdyScreens

POISON = b"<poison>"


class BrittleScreen(BitttyScreen):
    def feed(self, data: bytes) -> None:
        if POISON in data:
            raise RuntimeError("this engine cannot draw that")
        super().feed(data)

    def resize(self, cols: int, rows: int) -> None:
        if cols == 66:
            raise MemoryError
        super().resize(cols, rows)


class BrittleScreens:
    name = "brittle"

    def new(self, cols: int, rows: int) -> BrittleScreen:
        return BrittleScreen(cols, rows)


class NoScreens:
    name = "none"

    def new(self, cols: int, rows: int) -> BrittleScreen:
        raise OSError("no memory")


def test_a_screen_goes_on_with_what_it_showed_when_its_engine_fails(caplog: pytest.LogCaptureFixture) -> None:
    screen = SturdyScreens(BrittleScreens()).new(20, 5)
    screen.feed(b"before\r\n")
    with caplog.at_level(logging.ERROR):
        screen.feed(POISON)
    assert "cannot draw that" in caplog.text
    screen.feed(b"after")
    assert screen.text() == "before\nafter"


def test_an_engine_that_cannot_take_a_size_is_left_for_one_of_that_size() -> None:
    screen = SturdyScreens(BrittleScreens()).new(20, 5)
    screen.resize(66, 7)
    screen.feed(b"x" * 66)
    assert (screen.cols, screen.rows, screen.text()) == (66, 7, "x" * 66)


def test_the_other_engine_is_the_last_that_is_tried_and_takes_what_the_first_could_not() -> None:
    screen = SturdyScreens(BrittleScreens(), BitttyScreens).new(20, 5)
    for _ in range(5):
        screen.feed(POISON + b"\r\n")
    assert screen.text() == "<poison>\n<poison>\n<poison>"


def test_without_any_engine_a_screen_is_empty_and_complains_of_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    screen = SturdyScreens(BrittleScreens(), NoScreens).new(20, 5)
    for _ in range(3):
        screen.feed(POISON)
    caplog.clear()
    screen.feed(b"more")
    screen.resize(30, 6)
    assert (screen.text(), screen.draw(), screen.title, screen.cols) == ("", b"", "", 30)
    assert screen.corner(4, 2) == [b"    ", b"    "]
    assert caplog.text == ""
    screen.close()
