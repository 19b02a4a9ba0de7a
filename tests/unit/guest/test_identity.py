"""What a welcome means: a generation never goes back, and a fork is not its parent."""

import pytest

from outlive.guest.identity import decide_welcome
from outlive.guest.wire import WireError


@pytest.mark.parametrize(
    ("had", "told", "what"),
    [
        (("", 0), ("a", 1), "boot"),
        (("", 0), ("a", 7), "boot"),
        (("a", 3), ("a", 3), "again"),
        (("a", 3), ("a", 4), "wake"),
        (("a", 3), ("b", 1), "fork"),
        (("a", 3), ("b", 9), "fork"),
    ],
)
def test_a_welcome_is_told_by_what_was_before(had: tuple[str, int], told: tuple[str, int], what: str) -> None:
    assert decide_welcome(*had, *told) == what


def test_a_generation_that_is_over_is_refused() -> None:
    with pytest.raises(WireError, match="generation 2 is over"):
        decide_welcome("a", 3, "a", 2)
