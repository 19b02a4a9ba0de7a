"""What a refused start comes to: an end where nothing was started for certain, and nothing said where it is unknown."""

import pytest

from outlive.base import DeadlineError, ExhaustedError, OutliveError, UnavailableError
from outlive.machine.guest_link.refusals import refused
from outlive.machine.node.unstarted import exit_of


@pytest.mark.parametrize(
    ("kind", "said", "code"),
    [
        ("not_found", "not_started", 127),
        ("denied", "not_started", 126),
        ("invalid", "not_started", 126),
        ("exhausted", "not_started", 126),
        ("unavailable", "not_started", 126),
        ("not_found", "no_directory", 126),
        ("not_found", "no_such_user", 126),
        ("invalid", "bad_request", 126),
        ("exhausted", "no_descriptors", 126),
        ("exhausted", "too_many_commands", 126),
        ("exhausted", "ledger_full", 126),
    ],
)
def test_what_was_refused_before_it_began_is_over(kind: str, said: str, code: int) -> None:
    found = exit_of(refused(kind, f"machine.{said}", "No."))
    assert found is not None
    assert (found.reason, found.code, found.signal) == ("exited", code, None)


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("machine.guest_away", "it hung up"),
        DeadlineError("machine.guest_silent", "it says nothing"),
        ExhaustedError("machine.guest_busy", "too many ask"),
        ExhaustedError("machine.detached", "somebody else follows it"),
        refused("conflict", "machine.no_stdin", "it runs, without stdin"),
        refused("exhausted", "machine.no_room", "after it was started, perhaps"),
        refused("conflict", "machine.what_nobody_knows", "it says"),
    ],
)
def test_of_what_may_have_begun_no_end_is_said(error: OutliveError) -> None:
    assert exit_of(error) is None
