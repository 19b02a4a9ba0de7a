"""What a guest refuses has a name of ours, whatever it says; and each thing that our own guest says has its own."""

import re
from pathlib import Path

import pytest

from outlive.base import ExhaustedError, InvalidError, OutliveError
from outlive.guest import refusal
from outlive.machine.guest_link.refusals import KINDS, MESSAGE_LIMIT, NOT_STARTED, REFUSALS, UNKNOWN, refused

_GUEST = Path(refusal.__file__).parent
_SAID = re.compile(r'RefusalError\(\s*[a-z."]+,\s*"([a-z_]+)"')
_OF_ERRORS = re.compile(r'\("(?:[a-z_]+)", "([a-z_]+)"\)|, "[a-z_]+", "([a-z_]+)"\)')


def test_all_that_our_guest_says_is_known() -> None:
    said = {code for path in _GUEST.glob("*.py") for code in _SAID.findall(path.read_text())}
    by_number = {a or b for a, b in _OF_ERRORS.findall((_GUEST / "refusal.py").read_text())}
    assert {"port_closed", "ledger_full", "not_started", "not_a_directory"} <= said
    assert {"no_such_file", "disk_full", "not_empty", "system_error"} <= by_number
    assert {code for code in said | by_number if f"machine.{code}" not in REFUSALS} == set()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_not_known_is_always_the_same_refusal(kind: str) -> None:
    for code in ("machine.hibernated", "file.unknown", "no_such_file", "", "machine.guest_away", "<script>"):
        found = refused(kind, code, "m" * 5_000)
        assert (type(found), found.code) == UNKNOWN
        assert len(found.message) == MESSAGE_LIMIT


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_known_code_has_our_kind_whatever_kind_it_is_said_with(kind: str) -> None:
    for code, (error, name) in REFUSALS.items():
        if code != NOT_STARTED:
            found = refused(kind, code, "")
            assert (type(found), found.code) == (error, name)


@pytest.mark.parametrize(
    ("kind", "error", "code"),
    [
        ("not_found", InvalidError, "machine.no_such_program"),
        ("denied", InvalidError, "machine.not_started"),
        ("invalid", InvalidError, "machine.not_started"),
        ("exhausted", ExhaustedError, "machine.no_process"),
    ],
)
def test_why_a_program_did_not_start_is_in_its_name(kind: str, error: type[OutliveError], code: str) -> None:
    found = refused(kind, NOT_STARTED, "It did not start.")
    assert (type(found), found.code) == (error, code)
