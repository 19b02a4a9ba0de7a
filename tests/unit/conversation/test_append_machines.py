"""Which machine a conversation may be given, by whom and when."""

import pytest

from outlive.base import ConflictError, FencedError, TurnId
from outlive.conversation.append import Plan, plan
from outlive.conversation.events import MachineAttached, MachineWoken
from outlive.conversation.log import HAS_MACHINE, Appended
from unit.conversation.test_append import (
    AT,
    CONVERSATION,
    MESSAGE,
    TURN,
    append_of,
    check_planned,
    check_refused,
    known_with,
)

OTHER_TURN = TurnId("turn_0")
ATTACHED = MachineAttached(machine="mach_1")


def test_a_machine_is_attached_where_there_is_none_or_instead_of_the_one_that_is_there() -> None:
    another = append_of(ATTACHED, turn=None)
    for instead_of in (None, "mach_2"):
        known = known_with(machine="mach_0")
        check_refused(another._replace(instead_of=instead_of), known, ConflictError, HAS_MACHINE)
    for instead_of, machine in (("mach_0", "mach_0"), ("mach_0", None), (None, "mach_1")):
        known = known_with(machine=machine)
        check_planned(another._replace(instead_of=instead_of), known)
        assert known.summaries[CONVERSATION].machine == "mach_1"


@pytest.mark.parametrize("archived_at", [None, AT])
@pytest.mark.parametrize("open_turn", [None, OTHER_TURN])
def test_a_turn_that_is_over_attaches_no_machine(open_turn: TurnId | None, archived_at: str | None) -> None:
    known = known_with(turn=open_turn, archived_at=archived_at)
    check_refused(append_of(ATTACHED), known, FencedError, "turn.over")
    check_planned(append_of(MachineWoken(machine="mach_1")), known)  # what happened to one is said all the same


@pytest.mark.parametrize("archived_at", [None, AT])
def test_the_open_turn_attaches_a_machine_once_and_what_was_said_stays_a_repeat(archived_at: str | None) -> None:
    known = known_with(turn=TURN, archived_at=archived_at)
    check_planned(append_of(ATTACHED), known)
    known.summaries[CONVERSATION].turn = None
    again = plan(append_of(ATTACHED), known, Plan())
    assert isinstance(again, Appended)
    assert again.is_repeat


@pytest.mark.parametrize("open_turn", [None, OTHER_TURN])
def test_a_machine_comes_with_the_message_that_opens_a_turn_or_joins_one(open_turn: TurnId | None) -> None:
    known = known_with(turn=open_turn)
    events = check_planned(append_of(MESSAGE, ATTACHED), known).events
    assert {event.turn for event in events} == {open_turn or TURN}


def test_a_conversation_that_is_archived_is_given_no_machine() -> None:
    given = append_of(ATTACHED, turn=None)
    for turn in (None, TURN):
        check_planned(given, known_with(turn=turn))
        check_refused(given, known_with(turn=turn, archived_at=AT), ConflictError, "conversation.archived")
