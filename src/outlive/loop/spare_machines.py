"""Which of a conversation's machines nobody will ever look at again, by what its record and theirs say. Pure.

Rule 1: only those that operations of its own made: the first, that its id gives, and those that the id of a machine of
        it gives (`tools/machine.py`). What a person made for it stays, also as a second one.
Rule 2: while it has none, any of them may be the next. Once it has one, only those that follow that one may.
"""

from collections.abc import Iterable, Sequence

from outlive.base import MachineId, OperationId, derive
from outlive.conversation.log import Conversation
from outlive.machine.status import Machine


def spare_of(conversation: Conversation, machines: Sequence[Machine]) -> list[Machine]:
    """Those that may be let go if the log never named them. `machines`: all of it, deleted ones too."""
    is_over = conversation.archived_at is not None and conversation.turn is None
    if conversation.machine is None and not is_over:
        return []
    own = {first_of(conversation), *(after(each.id) for each in machines)}
    kept = {conversation.machine}
    if conversation.machine is not None and not is_over:
        kept |= _following(MachineId(conversation.machine), machines)
    return [
        each
        for each in machines
        if each.state != "deleted" and each.id not in kept and any(is_made_by(operation, each) for operation in own)
    ]


def first_of(conversation: Conversation) -> OperationId:
    """What makes its first machine."""
    return OperationId(derive("op", conversation.id))


def after(machine: MachineId) -> OperationId:
    """What makes the one that follows this one."""
    return OperationId(derive("op", machine, 1))


def is_made_by(operation: OperationId, machine: Machine) -> bool:
    """Made, or taken out of a pool."""
    return machine.claimed_by == operation or machine.id == derive("mach", operation)


def _following(machine: MachineId, machines: Iterable[Machine]) -> set[str]:
    """Those that were made one after the other, since each before it was gone."""
    made = {each.claimed_by or derive("op", each.id): each.id for each in machines}
    following: set[str] = set()
    while (found := made.get(after(machine))) is not None and found not in following:
        following.add(found)
        machine = found
    return following
