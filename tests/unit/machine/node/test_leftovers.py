"""Whose turn it is to be looked at."""

from outlive.machine.node.leftovers import next_after


def test_all_have_their_turn_in_rounds_of_bounded_size_and_then_the_first_again() -> None:
    names, last, rounds = list("ecabd"), "", list[list[str]]()
    for _ in range(4):
        rounds.append(next_after(last, names, 2))
        last = rounds[-1][-1]
    assert rounds == [["a", "b"], ["c", "d"], ["e"], ["a", "b"]]


def test_what_has_gone_meanwhile_costs_nobody_a_turn() -> None:
    assert next_after("b", ["a", "c"], 2) == ["c"]
    assert next_after("c", ["a"], 2) == ["a"]
    assert next_after("c", [], 2) == []
