"""Beginning a subagent: what its conversation is made with, and its machine.

Rule: everything is made of the step, in parts that may each be done again. Its turn is opened by the last of them, so
      nobody runs half of one.
"""

from collections.abc import Sequence

from pydantic import JsonValue

from outlive.base import ConflictError, MessageId, derive, to_text
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import EventData, MachineAttached, MessageSent, NewEvent
from outlive.conversation.log import HAS_MACHINE, Append, Conversation
from outlive.loop.activities.scribe import actor_of
from outlive.loop.state import Binding
from outlive.loop.subagents.link import TOOL, Link, operation_of, turn_of
from outlive.loop.tools.port import ToolContext

_TITLE = 80  # characters
_TRIES = 3  # each sees the machine that it has by then


async def make_child(
    conversations: Conversations, context: ToolContext, link: Link, bound: Binding, prompt: str, agent: str | None
) -> Conversation:
    """The subagent's conversation, with its machine and an open turn that the loop has to be told of."""
    child = await conversations.find_made(operation_of(link.step))
    if child is None:
        parent = await conversations.get(link.conversation)
        child = await conversations.create(
            operation_of(link.step),
            actor=parent.created_by,
            agent=agent or bound.agent,
            title=prompt.strip().partition("\n")[0][:_TITLE] or None,
            environment=parent.environment,
            model=bound.model if agent in (None, bound.agent) else None,
            metadata={**_kept(parent, link), TOOL: link.model_dump()},
        )
    message = MessageSent(message=MessageId(derive("msg", child.id)), text=prompt)
    attached = await _give_machine(context, child, link)
    await _open(conversations, child, (message, *attached), actor_of(bound))
    return child


async def _open(conversations: Conversations, child: Conversation, news: Sequence[EventData], actor: str) -> None:
    """Its turn, with what is said of its machine: also if it was given another meanwhile."""
    at = to_text(conversations.clock.now())
    for left in reversed(range(_TRIES)):
        try:
            await conversations.append(
                Append(
                    child.id,
                    tuple(NewEvent(each, at) for each in news),
                    key=TOOL,
                    actor=actor,
                    turn=turn_of(child.id),
                    instead_of=child.machine,  # nothing was done in it before the first message
                )
            )
        except ConflictError as error:
            if error.code == "append.key_reused":  # the parent's machine was another one then
                return
            if error.code != HAS_MACHINE or left == 0:
                raise
            child = await conversations.get(child.id)
        else:
            return


def _kept(parent: Conversation, link: Link) -> dict[str, JsonValue]:
    """A new machine gets the repository too; the same one, and a copy, have it."""
    return {"repo": parent.metadata["repo"]} if link.machine == "new" and "repo" in parent.metadata else {}


async def _give_machine(context: ToolContext, child: Conversation, link: Link) -> list[EventData]:
    """Make it, if it has to be there before the subagent begins; what is said of it with the first message."""
    machines = context.parts.machines
    if link.machine == "new" or (link.machine == "same" and machines is None):
        return []
    machine = await context.machine()
    if link.machine == "same":
        return [MachineAttached(machine=machine.id)]
    assert machines is not None
    await machines.copy(machine.id, child)
    return []
