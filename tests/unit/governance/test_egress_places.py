"""Places for the connections of a node's machines: whatever some take, each finds its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.governance.egress_shared import EgressPlaces


@pytest.mark.parametrize(("total", "machines", "own", "alone"), [(1024, 64, 8, 264), (256, 64, 2, 66), (8, 2, 2, 4)])
def test_one_machine_takes_its_own_and_half_of_what_is_nobodys(total: int, machines: int, own: int, alone: int) -> None:
    places = EgressPlaces(total, machines)
    held = 0
    while places.take(held):
        held += 1
    assert (places.own, held) == (own, alone)


@given(
    total=st.integers(0, 600), machines=st.integers(1, 9), turns=st.lists(st.tuples(st.integers(0, 8), st.booleans()))
)
def test_however_they_come_and_go_each_finds_its_own_and_there_are_no_more_than_all(
    total: int, machines: int, turns: list[tuple[int, bool]]
) -> None:
    places = EgressPlaces(total, machines)
    at_first = places.free
    held = [0] * machines

    def give_back(at: int) -> None:
        places.give_back(held[at])
        held[at] -= 1

    for at, is_greedy in [(at % machines, is_greedy) for at, is_greedy in turns]:
        if is_greedy:
            while places.take(held[at]):
                held[at] += 1
        elif held[at]:
            give_back(at)
        assert sum(held) <= max(total, machines)
    for at in range(machines):
        while held[at] < places.own:
            assert places.take(held[at])
            held[at] += 1
        while held[at]:
            give_back(at)
    assert places.free == at_first
