"""The credit of a stream: nobody sends more than the other end has room for, and each ends once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.guest.flow import WINDOW, Flow
from outlive.guest.wire import WireError


@given(st.lists(st.tuples(st.integers(1, WINDOW), st.integers(0, WINDOW)), max_size=60))
def test_what_is_under_way_never_exceeds_the_window_and_nothing_gets_stuck(steps: list[tuple[int, int]]) -> None:
    sender, reader = Flow(), Flow()
    unread = 0
    for wanted, taken in steps:
        size = min(wanted, sender.may_send)
        if size:
            sender.send(size)
            reader.take(size)
            unread += size
        assert unread <= WINDOW
        used = min(taken, unread)
        unread -= used
        if given_back := reader.consume(used):
            sender.take_credit(given_back)
    if given_back := reader.consume(unread):
        sender.take_credit(given_back)
    assert sender.may_send >= WINDOW // 2


def test_more_than_the_credit_is_refused_by_both_ends() -> None:
    with pytest.raises(ValueError, match="credit"):
        Flow().send(WINDOW + 1)
    flow = Flow()
    flow.take(WINDOW)
    with pytest.raises(WireError):
        flow.take(1)


def test_data_of_nothing_is_refused() -> None:
    with pytest.raises(WireError):
        Flow().take(0)


def test_credit_for_what_was_not_sent_is_refused() -> None:
    flow = Flow()
    with pytest.raises(WireError):
        flow.take_credit(1)
    flow.send(10)
    flow.take_credit(10)
    assert flow.may_send == WINDOW


def test_after_its_end_a_stream_says_nothing_more() -> None:
    flow = Flow()
    flow.take_end()
    with pytest.raises(WireError):
        flow.take(1)
    with pytest.raises(WireError):
        flow.take_end()
    assert flow.consume(WINDOW) == 0
    assert not flow.is_over
    flow.has_ended = True
    assert flow.is_over
    with pytest.raises(ValueError, match="credit"):
        flow.send(1)
