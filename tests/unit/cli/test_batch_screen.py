"""How fast a batch goes, and how long it will take."""

from outlive.cli.batch_screen import Pace, describe, duration
from outlive.client.batches import Standing


def test_the_rate_is_that_of_the_last_minute() -> None:
    pace = Pace()
    pace.take(100, 0.0)
    assert (pace.rate, pace.text(50)) == (None, ""), "what an earlier run did says nothing of this one"
    pace.take(110, 10.0)
    assert pace.text(50) == "1.0/s, 50 s left"
    for second in range(11, 200):
        pace.take(110 + (second - 10) * 5, float(second))
    assert pace.rate == 5.0
    assert pace.text(0) == "5.0/s"


def test_durations_are_for_people() -> None:
    assert [duration(seconds) for seconds in (3.4, 61, 3600 * 5 + 61)] == ["3 s", "1 min 01 s", "5 h 01 min"]


def test_what_failed_and_what_waits_is_told_beside() -> None:
    assert describe(Standing(1200, 3, 0, 0)) == "3 of 1,200"
    assert describe(Standing(1200, 3, 1, 2)) == "4 of 1,200, 1 failed, 2 waiting"
