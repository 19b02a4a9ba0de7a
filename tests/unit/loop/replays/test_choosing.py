"""Which turn is replayed, and with which messages."""

import pytest

from outlive.base import ConflictError
from outlive.loop.replays.choosing import choose, turns_of
from unit.loop.replays.turns import Writing


def two_turns() -> Writing:
    to = Writing()
    to.say("conversation.created", None)
    to.message("One", "turn_1")  # 2
    to.begin("turn_1")
    to.answer("Yes.", turn="turn_1")
    to.message("One more", "turn_1")  # 6
    to.answer("Yes, yes.", turn="turn_1")
    to.end("turn_1")  # 9
    to.say("machine.hibernated", None, machine="m")
    to.message("Two", "turn_2")  # 11
    to.message("Two, and", "turn_2")
    to.begin("turn_2")
    to.answer("Yes.", turn="turn_2")
    to.end("turn_2")  # 16
    return to


def test_without_a_place_it_is_the_last_turn_that_ended() -> None:
    to = two_turns()
    to.message("Three", "turn_3")
    turn = choose(turns_of(to.events), None)
    assert (turn.id, turn.first, turn.last) == ("turn_2", 11, 16)
    assert [message.text for message in turn.asked] == ["Two", "Two, and"]


@pytest.mark.parametrize(("at", "turn"), [(2, 1), (5, 1), (9, 1), (10, 1), (11, 2), (16, 2)])
def test_a_place_names_the_turn_that_holds_it_or_ended_before_it(at: int, turn: int) -> None:
    assert choose(turns_of(two_turns().events), at).id == f"turn_{turn}"


def test_messages_that_came_after_the_first_answer_are_left_out_and_counted() -> None:
    turn = choose(turns_of(two_turns().events), 2)
    assert ([message.text for message in turn.asked], turn.left_out) == (["One"], 1)


def test_what_has_not_ended_or_not_begun_is_refused() -> None:
    to = two_turns()
    to.message("Three", "turn_3")
    for events, at, code in (
        (to.events, 17, "replay.turn_open"),
        (to.events[:5], None, "replay.no_turn"),
        (to.events, 1, "replay.no_turn"),
    ):
        with pytest.raises(ConflictError) as refused:
            choose(turns_of(events), at)
        assert refused.value.code == code
    to.end("turn_3", "failed")  # nobody could be bound to it
    with pytest.raises(ConflictError) as refused:
        choose(turns_of(to.events), None)
    assert refused.value.code == "replay.no_message"
