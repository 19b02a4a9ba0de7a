"""When a disk is tried to be saved again, and when it is given up."""

import pytest

from outlive.base import (
    BrokenError,
    DeadlineError,
    DeniedError,
    ExhaustedError,
    InvalidError,
    NotFoundError,
    OutliveError,
    UnavailableError,
)
from outlive.machine.node.rescue import DISK_TRIES, wait_before_next


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("objects.unavailable", "away"),
        DeadlineError("storage.slow", "slow"),
        ExhaustedError("objects.full", "full"),
        DeniedError("objects.denied", "a wrong key"),
        NotFoundError("checkpoint.unknown", "its time was over"),
    ],
)
def test_what_can_be_mended_from_outside_is_tried_for_ever_and_less_and_less_often(error: OutliveError) -> None:
    waits = [wait_before_next(error, tries) for tries in (1, 2, 3, 8, 9, 10_000)]
    assert waits == [10.0, 20.0, 40.0, 1_280.0, 1_800.0, 1_800.0]


@pytest.mark.parametrize(
    "error", [UnavailableError("checkpoint.disk", "Input/output error"), BrokenError("checkpoint.damaged", "damaged")]
)
def test_a_disk_that_cannot_be_read_or_read_back_is_given_up_after_some_tries(error: OutliveError) -> None:
    waits = [wait_before_next(error, tries) for tries in range(1, DISK_TRIES + 1)]
    assert waits[-1] is None
    assert None not in waits[:-1]


def test_what_no_try_can_mend_is_given_up_at_once() -> None:
    assert wait_before_next(InvalidError("checkpoint.image", "no image"), 1) is None
    assert wait_before_next(NotFoundError("base.missing", "gone"), 1) is None
