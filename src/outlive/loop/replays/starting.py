"""Beginning a replay: a fork that ends right before the turn, with the turn's messages sent again.

Rule: everything is made of the operation, in two steps that may each be done again: the conversation, and one batch
      with the messages and what this is a replay of. So who asks again after a crash gets the same replay.
"""

from outlive.base import ConversationId, MessageId, NotFoundError, OperationId, TurnId, derive, to_text
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import EventData, MessageSent, NewEvent, ReplayStarted
from outlive.conversation.log import Append, Conversation, beyond_head
from outlive.loop.models.registry import parse_model
from outlive.loop.replays.answering import read_between
from outlive.loop.replays.choosing import Turn, choose, turns_of


async def start_replay(
    conversations: Conversations,
    operation: OperationId,
    conversation: ConversationId,
    *,
    actor: str,
    model: str,
    at: int | None = None,
    execute: bool = False,
) -> tuple[Conversation, TurnId]:
    """The conversation of the replay, with an open turn that the loop has to be told of. `fork.beyond_head` (invalid)
    if there is no event `at`."""
    parse_model(model)
    origin = await conversations.get(conversation)
    turns = turns_of(await read_between(conversations, origin.id, 1, origin.head))
    made = await _made_before(conversations, operation)
    if made is not None and made.parent is not None:
        turn = choose(turns, made.parent[1] + 1)  # the one that was meant then: others may have ended since
    else:
        if at is not None and at > origin.head:
            raise beyond_head(origin.id, origin.head, at)
        turn = choose(turns, at)
        made = await conversations.create(
            operation,
            actor=actor,
            agent=origin.agent,
            title=origin.title,
            environment=origin.environment,
            model=origin.model,
            metadata=origin.metadata,
            parent=(origin.id, turn.first - 1),
        )
    news = _news(operation, origin, turn, model, execute)
    now = to_text(conversations.clock.now())
    opened = TurnId(derive("turn", operation))
    await conversations.append(
        Append(made.id, tuple(NewEvent(each, now) for each in news), key="replay", actor=actor, turn=opened)
    )
    return await conversations.get(made.id), opened


async def _made_before(conversations: Conversations, operation: OperationId) -> Conversation | None:
    """What this operation made before a crash."""
    try:
        return await conversations.get(ConversationId(derive("conv", operation)))
    except NotFoundError:
        return None


def _news(operation: OperationId, origin: Conversation, turn: Turn, model: str, execute: bool) -> list[EventData]:
    messages: list[EventData] = [
        MessageSent(
            message=MessageId(derive("msg", operation, n)),
            text=message.text,
            attachments=message.attachments,
            model=model,
        )
        for n, message in enumerate(turn.asked, 1)
    ]
    bound = turn.bound or {}
    started = ReplayStarted(
        conversation=origin.id,
        turn=turn.id,
        first=turn.first,
        last=turn.last,
        agent=str(bound["agent"]),
        version=int(str(bound["version"])),
        model=model,
        execute=execute,
        left_out=turn.left_out,
    )
    return [*messages, started]
