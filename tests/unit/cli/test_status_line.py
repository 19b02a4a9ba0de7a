"""What is said beside a terminal's output."""

from typing import Any

import pytest

from outlive.cli.status_line import StatusLine, draw_notice, set_title

ANA = {"operator": "prin_ana", "name": "ana", "kind": "person"}
ME = {"operator": "prin_me", "name": "me", "kind": "person"}


def _line(**given: Any) -> StatusLine:
    return StatusLine("term_0123456789abcdef", "prin_me", **given)


def test_the_title_says_who_types() -> None:
    line = _line(title="vim")
    assert line.text() == "vim — outlive: nobody types"
    line.take({"lease": ANA})
    assert line.text() == "vim — outlive: ana (person) types"
    line.take({"lease": ME})
    line.take({"operators": [1, 2, 3]})
    assert line.text() == "vim — outlive: you type · 3 here"
    line.is_lost = True
    assert line.text() == "vim — outlive: connection lost, trying again"


@pytest.mark.parametrize(
    ("words", "notice"),
    [
        ({"lease": ANA}, "ana (person) has taken over"),
        ({"lease": None}, "nobody types now"),
        ({"lease": ME, "terminal": "t", "offset": 1}, None),
        ({"lease": ME}, None),
        ({"refused": {"lease": ANA}}, "ana (person) types here; what you typed was refused. Ctrl-] t takes over"),
        ({"refused": {"lease": ME}}, "what you typed was refused"),
        ({"refused": {"lease": ME, "code": "machine.paused"}}, "the machine is paused; what you typed was refused"),
        ({"refused": {"lease": None}}, "what you typed was refused"),
        ({"refused": "nonsense"}, "what you typed was refused"),
        ({"machine": "hibernated"}, "the machine is hibernated; type to wake it"),
        ({"machine": "running"}, None),
        ({"gap": {"from": 2, "to": 12}}, "10 bytes of output are gone"),
        ({"title": "x"}, None),
        ({"unknown": 1}, None),
    ],
)
def test_what_matters_is_worth_a_notice(words: dict[str, Any], notice: str | None) -> None:
    assert _line(lease=ME).take(words) == notice


def test_one_who_begins_to_type_where_nobody_did_has_taken_nothing_over() -> None:
    assert _line().take({"lease": ANA}) == "ana (person) types now"
    assert _line().take({"lease": ME}) == "you type now"


def test_one_who_looks_on_is_not_told_that_they_type() -> None:
    line = _line(observes=True, lease=ME, title="vim")
    assert line.text() == "vim — outlive: you type elsewhere"
    assert line.take({"machine": "hibernated"}) == "the machine is hibernated"


def test_what_keeps_the_screen_from_being_drawn_is_said_until_it_is_over() -> None:
    line = _line()
    assert line.standing is None
    line.take({"machine": "away"})
    assert line.standing == "the machine is away, and is waited for"
    line.is_lost = True
    assert line.standing == "connection lost, trying again"
    line.is_lost = False
    line.take({"terminal": "term_0123456789abcdef", "offset": 7, "lease": None})
    assert (line.standing, line.machine) == (None, "running")


def test_nothing_that_others_chose_reaches_the_terminal_raw() -> None:
    evil = "\x1b]52;c;eA==\x07\x9b6n\u202e"
    line = _line()
    line.take({"lease": {"operator": "p", "name": evil, "kind": evil}})
    line.take({"title": evil})
    drawn = set_title(line.text()) + draw_notice(line.holder, 80, 24)
    text = drawn.decode()
    assert text.count("\x1b]") == 1
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "\x9b" not in text


def test_a_notice_stays_on_its_row() -> None:
    assert len(draw_notice("x" * 500, 40, 10)) < 100
