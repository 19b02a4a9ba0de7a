"""Which machines of a conversation may be let go, by who made them and what its log names last."""

from datetime import UTC, datetime
from typing import Any

import pytest

from outlive.base import (
    MachineId,
    OperationId,
    PrincipalId,
    TurnId,
    derive,
    new_conversation_id,
    new_machine_id,
    new_operation_id,
)
from outlive.conversation.log import Conversation
from outlive.loop.spare_machines import after, first_of, is_made_by, spare_of
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Machine

AT = datetime(2030, 1, 2, tzinfo=UTC)
TURN = TurnId("turn_1")
ID = new_conversation_id()


def conversation(machine: str | None = None, *, turn: TurnId | None = None, is_archived: bool = False) -> Conversation:
    told = ("", "", "", "2030" if is_archived else None)
    return Conversation(ID, None, None, None, None, {}, None, "idle", turn, machine, 1, *told)


def made_by(operation: OperationId, **more: Any) -> Machine:
    fields = {"id": MachineId(derive("mach", operation)), "owner": PrincipalId("prin_1"), "environment": "host"} | more
    return Machine(**fields, conversation=ID, spec=MachineSpec(), created_at=AT, changed_at=AT)


FIRST = made_by(first_of(conversation()))
SECOND = made_by(after(FIRST.id))
OF_A_POOL = made_by(first_of(conversation()), id=new_machine_id(), claimed_by=first_of(conversation()))
GIVEN = made_by(new_operation_id())
GIVEN_OF_A_POOL = made_by(new_operation_id(), id=new_machine_id(), claimed_by=new_operation_id())
AFTER_GIVEN = made_by(after(GIVEN.id), id=new_machine_id(), claimed_by=after(GIVEN.id))
AFTER_THAT = made_by(after(AFTER_GIVEN.id))


@pytest.mark.parametrize("turn", [None, TURN])
def test_while_it_has_none_any_may_be_the_next(turn: TurnId | None) -> None:
    assert spare_of(conversation(turn=turn), [FIRST, SECOND, GIVEN]) == []
    assert spare_of(conversation(turn=TURN, is_archived=True), [FIRST, SECOND, GIVEN]) == []


@pytest.mark.parametrize("own", [FIRST, OF_A_POOL])
@pytest.mark.parametrize("given", [GIVEN, GIVEN_OF_A_POOL])
def test_what_it_made_beside_the_one_that_it_has_is_spare_and_what_a_person_made_is_not(
    own: Machine, given: Machine
) -> None:
    second = made_by(after(own.id))
    other = made_by(new_operation_id())
    assert spare_of(conversation(given.id), [own, second, given, other]) == [own, second]
    deleted = own.model_copy(update={"state": "deleted"})
    assert spare_of(conversation(given.id), [deleted, second, given, other]) == [second]
    assert spare_of(conversation(own.id), [own, given, other]) == []


def test_what_follows_the_one_that_it_has_may_be_the_next_until_it_is_over() -> None:
    machines = [FIRST, GIVEN, AFTER_GIVEN, AFTER_THAT]
    assert spare_of(conversation(GIVEN.id), machines) == [FIRST]
    assert spare_of(conversation(AFTER_GIVEN.id), machines) == [FIRST]
    assert spare_of(conversation(GIVEN.id, turn=TURN, is_archived=True), machines) == [FIRST]
    assert spare_of(conversation(GIVEN.id, is_archived=True), machines) == [FIRST, AFTER_GIVEN, AFTER_THAT]
    assert spare_of(conversation(is_archived=True), [FIRST, GIVEN]) == [FIRST]


def test_the_machine_of_another_conversation_is_followed_by_none_that_is_spare() -> None:
    """A subagent in its parent's machine may have made the next for both."""
    lent = new_machine_id()
    assert spare_of(conversation(lent), [made_by(after(lent))]) == []
    assert spare_of(conversation(GIVEN.id), [made_by(after(lent)), GIVEN]) == []


def test_who_made_a_machine_is_told_by_its_id_or_by_who_took_it_out_of_the_pool() -> None:
    assert is_made_by(first_of(conversation()), FIRST)
    assert is_made_by(first_of(conversation()), OF_A_POOL)
    assert not is_made_by(first_of(conversation()), GIVEN)
