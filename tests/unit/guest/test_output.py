"""What the guest keeps of outputs: bounded for one command, for all of them, and in all."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.guest.loop import Loop
from outlive.guest.output import KEPT_IN_ALL, KEPT_LIMIT, Budget, Output, Purse

MIB = 1024 * 1024


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, MIB)), max_size=400))
def test_all_commands_together_keep_no_more_than_twice_the_bound(steps: list[tuple[int, int]]) -> None:
    purse = Purse()
    budgets = [Budget(2**40, purse) for _ in range(4)]
    for which, size in steps:
        budgets[which].grow(budgets[which].room(size))
        assert purse.size <= 2 * KEPT_IN_ALL


def test_a_command_is_full_at_its_own_bound_or_at_that_of_all() -> None:
    purse = Purse()
    one, other = Budget(2**40, purse), Budget(2**40, purse)
    one.grow(KEPT_LIMIT)
    assert (one.is_full, other.is_full) == (True, False)
    purse.size = KEPT_IN_ALL
    assert other.is_full
    one.grow(-KEPT_LIMIT)
    assert (one.is_full, other.is_full) == (False, False)


def test_nothing_is_kept_beyond_the_total_of_a_command() -> None:
    budget = Budget(100, Purse())
    assert budget.room(70) == 70
    budget.remaining -= 70
    assert budget.room(70) == 30


@pytest.mark.parametrize("total", [0, 10, 2**40])
def test_the_pipe_is_read_to_its_end_whatever_may_be_kept(total: int) -> None:
    read, write = os.pipe()
    output = Output(Loop(), read, Budget(total, Purse()))
    os.write(write, bytes(1000))
    os.close(write)
    output.drain()
    assert not output.is_open
    assert (output.size, output.cut) == (min(1000, total), 1000 - min(1000, total))
