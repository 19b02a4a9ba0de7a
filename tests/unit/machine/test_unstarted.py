"""What a refused start comes to: an end where nothing was started for certain, and nothing said where it is unknown."""

import pytest

from outlive.base import (
    ConflictError,
    DeadlineError,
    DeniedError,
    ExhaustedError,
    InvalidError,
    NotFoundError,
    OutliveError,
    UnavailableError,
)
from outlive.machine.node.unstarted import exit_of


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (NotFoundError("machine.not_started", "no such file"), 127),
        (DeniedError("machine.not_started", "permission denied"), 126),
        (InvalidError("machine.not_started", "no format"), 126),
        (ExhaustedError("machine.not_started", "no process left"), 126),
        (NotFoundError("machine.no_directory", "no such cwd"), 126),
        (NotFoundError("machine.no_such_user", "nobody"), 126),
        (InvalidError("machine.bad_request", "no text"), 126),
        (ExhaustedError("machine.no_descriptors", "none left"), 126),
        (ExhaustedError("machine.too_many_commands", "512"), 126),
        (ExhaustedError("machine.ledger_full", "4096"), 126),
    ],
)
def test_what_was_refused_before_it_began_is_over(refusal: OutliveError, code: int) -> None:
    found = exit_of(refusal)
    assert found is not None
    assert (found.reason, found.code, found.signal) == ("exited", code, None)


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("machine.guest_away", "it hung up"),
        DeadlineError("machine.guest_silent", "it says nothing"),
        ConflictError("machine.no_stdin", "it runs, without stdin"),
        ConflictError("machine.guest_refused", "what nobody knows"),
        ExhaustedError("machine.guest_busy", "too many ask"),
    ],
)
def test_of_what_may_have_begun_no_end_is_said(error: OutliveError) -> None:
    assert exit_of(error) is None
