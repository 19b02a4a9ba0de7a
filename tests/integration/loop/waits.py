"""What tests of turns that wait have in common: an agent that has to ask, what is asked, and how it is answered."""

from typing import Any

from eventually import eventually
from integration.loop.turns import PERSON, WITHIN_S, Stage
from outlive.base import ConversationId, new_operation_id
from outlive.conversation.approvals import Approval, Decision
from outlive.loop.agents import AgentDefinition

TOOLS = ("read_file", "search", "shell", "wait", "ask_human")


async def careful(stage: Stage, **policy: Any) -> ConversationId:
    """A conversation with an agent that has this policy."""
    definition = AgentDefinition(
        name="careful", model="openai:pretend", instructions="Ask first.", tools=TOOLS, policy=policy or None
    )
    await stage.parts.agents.apply(definition, by=PERSON)
    return await stage.converse(agent="careful")


async def parked(stage: Stage, conversation: ConversationId) -> list[Approval]:
    """What is asked, once the turn waits and nothing of it runs."""

    async def is_waiting() -> bool:
        return (await stage.parts.conversations.get(conversation)).state == "waiting" and await is_quiet(
            stage, conversation
        )

    try:
        await eventually(is_waiting, WITHIN_S)
    except AssertionError as error:
        for event in await stage.events(conversation):
            error.add_note(f"{event.seq} {event.type} {event.data_json[:300]}")
        raise
    pending = await stage.parts.approvals.list(limit=100, state="pending")
    return sorted((each for each in pending if each.conversation == conversation), key=lambda each: each.question)


async def is_quiet(stage: Stage, conversation: ConversationId) -> bool:
    """Whether the turn is in Temporal, parked, and no activity of it is under way."""
    last = [event.type for event in await stage.events(conversation) if event.type.startswith(("turn.", "step."))][-1]
    described = await stage.client.get_workflow_handle(conversation).describe()
    return last == "turn.parked" and not described.raw_description.pending_activities


async def decide(
    stage: Stage, approval: Approval, decision: Decision, comment: str | None = None, *, is_told: bool = True
) -> None:
    await stage.parts.approvals.decide(new_operation_id(), approval.id, decision, actor=PERSON, comment=comment)
    if is_told:
        await stage.loop.submit(approval.conversation)
