"""A node that could not renew its lease freezes its machines before others may take them, and recovers afterwards."""

from hypothesis import given
from hypothesis import strategies as st

from outlive.machine.activities import NODE_MARGIN_S
from outlive.machine.node.lease import BEAT_S, LEASE_S, Lease


def test_a_lease_counts_from_when_it_was_asked_for() -> None:
    lease = Lease(asked_at=100.0)
    assert lease.decide(100.0 + LEASE_S - 0.01) == "keep"
    assert lease.decide(100.0 + LEASE_S) == "freeze"
    assert lease._replace(is_frozen=True).decide(100.0 + LEASE_S) == "keep"


def test_one_that_was_renewed_in_time_again_recovers() -> None:
    lease = Lease(asked_at=100.0, is_frozen=True).renewed(150.0, 150.1, was_over=False)
    assert lease.decide(151.0) == "recover"
    assert lease._replace(is_frozen=False).decide(151.0) == "keep"


def test_a_node_that_slept_past_its_lease_recovers_though_it_never_saw_the_end_of_it() -> None:
    slept = Lease(asked_at=100.0).renewed(100.0 + LEASE_S + 50, 100.0 + LEASE_S + 50.1, was_over=False)
    assert slept.decide(100.0 + LEASE_S + 50.2) == "recover"
    was_stuck = Lease(asked_at=100.0).renewed(100.0 + BEAT_S, 100.0 + LEASE_S + 50, was_over=False)
    assert was_stuck.is_frozen
    assert Lease(asked_at=100.0).renewed(100.0 + BEAT_S, 100.1 + BEAT_S, was_over=False) == Lease(100.0 + BEAT_S)


def test_a_node_whose_host_stood_still_with_all_its_clocks_recovers_too() -> None:
    stood_still = Lease(asked_at=100.0).renewed(100.1, 100.2, was_over=True)
    assert stood_still.decide(100.3) == "recover"


@given(st.floats(0, 1e6), st.floats(0, 1e4))
def test_whoever_waits_for_the_margin_comes_after_the_freeze(asked_at: float, later: float) -> None:
    """The database counts from when it heard the renewal, which is not before it was asked for."""
    others_may_at = asked_at + LEASE_S + NODE_MARGIN_S
    if Lease(asked_at).decide(asked_at + later) == "keep":
        assert asked_at + later < others_may_at


def test_three_beats_may_fail_before_the_lease_is_over() -> None:
    assert LEASE_S / BEAT_S >= 3
