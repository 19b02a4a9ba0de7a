"""Times are aware, UTC, and in text order."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.base import SystemClock, to_text

FIRST = datetime(1900, 1, 1, tzinfo=UTC)
moments = st.integers(0, 8_000 * 366 * 86_400 * 10**6).map(lambda micros: FIRST + timedelta(microseconds=micros))


def test_now_is_aware_and_utc() -> None:
    before = datetime.now(UTC)
    now = SystemClock().now()
    assert now.utcoffset() == timedelta(0)
    assert before <= now <= datetime.now(UTC)


def test_monotonic_time_does_not_go_back() -> None:
    clock = SystemClock()
    seen = [clock.monotonic() for _ in range(1_000)]
    assert seen == sorted(seen)


@settings(deadline=None)  # the machine may be busy
@given(moments)
def test_a_time_comes_back_from_its_text(moment: datetime) -> None:
    assert datetime.fromisoformat(to_text(moment)) == moment


@settings(deadline=None)  # the machine may be busy
@given(moments, moments)
def test_text_order_is_time_order(one: datetime, other: datetime) -> None:
    assert (to_text(one) < to_text(other)) == (one < other)


def test_a_time_of_another_zone_is_told_in_utc() -> None:
    there = datetime(2030, 1, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert to_text(there) == "2030-01-01T23:30:00.000000Z"
