"""Giving a conversation a machine that somebody made for it: its agent works there from then on."""

from outlive.base import ConflictError, ConversationId, to_text
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import MachineAttached, NewEvent
from outlive.conversation.log import HAS_MACHINE, Append
from outlive.loop.machine_forks import attached_key
from outlive.machine.status import Machine


async def attach(conversations: Conversations, conversation: ConversationId, machine: Machine, *, actor: str) -> None:
    """Unless it has one: that is not taken away. Once, however often it is asked for."""
    attached = NewEvent(MachineAttached(machine=machine.id), to_text(conversations.clock.now()))
    try:
        await conversations.append(Append(conversation, (attached,), key=attached_key(machine.id), actor=actor))
    except ConflictError as error:
        if error.code != HAS_MACHINE:
            raise
