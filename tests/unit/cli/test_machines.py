"""What the words on the command line stand for."""

from pathlib import Path

import pytest

from outlive.base import InvalidError
from outlive.cli.machine_copy import InMachine, is_plain_name, parse_place
from outlive.cli.machine_exec import exit_code_of, parse_env
from outlive.client import ExecResult

MACHINE = "mach_" + "0" * 32


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"{MACHINE}:a/b", InMachine(MACHINE, "a/b")),
        (f"{MACHINE}:/etc/", InMachine(MACHINE, "/etc")),
        (f"{MACHINE}:/", InMachine(MACHINE, "/")),
        (f"{MACHINE}:", InMachine(MACHINE, ".")),
        (f"{MACHINE}:a:b\nc", InMachine(MACHINE, "a:b\nc")),
        ("C:x", Path("C:x")),
        ("mach_1:x", Path("mach_1:x")),
        (f"./{MACHINE}:x", Path(f"./{MACHINE}:x")),
    ],
)
def test_a_place_is_in_a_machine_or_here(text: str, place: InMachine | Path) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0"])
def test_what_leads_elsewhere_is_no_name(name: str) -> None:
    assert not is_plain_name(name)


def test_a_variable_is_a_name_and_a_value() -> None:
    assert parse_env(("A=1", "B=x=y", "C=")) == {"A": "1", "B": "x=y", "C": ""}
    for wrong in ("A", "=1", ""):
        with pytest.raises(InvalidError):
            parse_env((wrong,))


@pytest.mark.parametrize(("outcome", "code", "exits"), [("finished", 3, 3), ("timeout", None, 124), ("lost", None, 1)])
def test_the_exit_code_is_the_commands_own(outcome: str, code: int | None, exits: int) -> None:
    assert exit_code_of(ExecResult("e", outcome, code, "", "", False)) == exits
