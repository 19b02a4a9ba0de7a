"""What a guest says of what it holds is checked before anybody writes it down."""

import pytest

from outlive.guest.wire import WireError
from outlive.machine.guest_link.answers import read_held
from outlive.machine.guest_link.facts import read_terminals

TERMINAL = {"pid": 7, "columns": 80, "rows": 24, "start": 0, "end": 0, "input": 0, "output_ago_s": 0.0, "exit": None}
EFFECT = {"exit": None, "stdout": 0, "stderr": 0, "stdin": None}


@pytest.mark.parametrize("name", ["", "\0", "\ud800", "two words", "\u202e", "x" * 129, None, 7])
def test_a_name_that_no_database_takes_is_a_lie(name: object) -> None:
    with pytest.raises(WireError):
        read_terminals({"terminals": [{**TERMINAL, "terminal": name}]})
    with pytest.raises(WireError):
        read_held({**EFFECT, "effect": name})


def test_names_that_we_gave_are_read_as_they_are() -> None:
    [terminal] = read_terminals({"terminals": [{**TERMINAL, "terminal": "term_1"}]})
    assert (terminal.terminal, read_held({**EFFECT, "effect": "eff:1"}).effect) == ("term_1", "eff:1")
