"""Which calls of a replay the recording answers, and where the two part."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outlive.loop.replays.recording import answered, calls_of, recording_of, same_of
from unit.loop.replays.turns import TURN, Writing, call


def outputs(writing: Writing, calls: list[dict[str, Any]]) -> list[str]:
    return [result.output for result in answered(recording_of(writing.events, TURN), calls)]


def recorded() -> Writing:
    """ls, then cat beside ls, then one more that nobody waited for."""
    to = Writing()
    to.message("Look")
    to.begin()
    to.answer("", call("a", command="ls"))
    to.result("a", "first ls")
    to.answer("", call("a", command="ls"), call("b", command="cat x", timeout_s=5))
    to.result("b", "cat")  # they ran at the same time, and the second was done first
    to.result("a", "second ls")
    to.answer("", call("c", command="rm x"))
    to.end(outcome="interrupted")
    return to


def test_the_same_call_is_answered_by_its_results_in_their_order() -> None:
    ls, cat = call("x", command="ls"), call("y", timeout_s=5, command="cat x")
    assert outputs(recorded(), [ls, ls, cat]) == ["first ls", "second ls", "cat"]
    assert outputs(recorded(), [cat, ls]) == ["cat", "first ls"]


def test_they_part_at_the_first_call_without_a_result_and_never_meet_again() -> None:
    ls = call("x", command="ls")
    for other in (call("x", command="pwd"), call("x", "read_file", command="ls"), call("x", command="ls", error="?")):
        assert outputs(recorded(), [ls, other, ls]) == ["first ls"]
    assert outputs(recorded(), [ls, ls, ls]) == ["first ls", "second ls"], "there were only two"
    assert outputs(recorded(), [call("x", command="rm x")]) == [], "what nobody waited for has no result"


def test_calls_of_other_turns_are_not_in_it() -> None:
    to = recorded()
    to.answer("", call("z", command="other"), turn="turn_2")
    to.result("z", "other", turn="turn_2")
    assert outputs(to, [call("x", command="other")]) == []
    assert len(calls_of(to.events, TURN)) == 4


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=4)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_how_arguments_are_written_does_not_matter(arguments: dict[str, Any]) -> None:
    turned = dict(reversed(arguments.items()))
    again = json.loads(json.dumps(turned, indent=3))
    assert same_of({"name": "a", "arguments": arguments}) == same_of({"name": "a", "arguments": again})


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_a_result_is_told_at_most_once_and_only_to_its_own_call(was: list[str], now: list[str]) -> None:
    to = Writing()
    for n, name in enumerate(was):
        to.answer("", call(f"c{n}", command=name))
        to.result(f"c{n}", f"{name} {n}")
    found = outputs(to, [call("x", command=name) for name in now])
    assert len(set(found)) == len(found)
    assert [each[0] for each in found] == now[: len(found)]
    if len(found) < len(now):
        assert now[: len(found) + 1].count(now[len(found)]) > was.count(now[len(found)])
