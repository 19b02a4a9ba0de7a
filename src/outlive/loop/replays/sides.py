"""Reading the two turns of a comparison from their logs."""

from outlive.base import ConversationId, InvalidError, NotFoundError, TurnId
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import Event
from outlive.loop.replays.answering import read_between
from outlive.loop.replays.comparison import Comparison, Side, compare, side_of


async def compare_turns(
    conversations: Conversations, conversation: ConversationId, other: ConversationId | None = None
) -> Comparison:
    """A replay on the right and what it is a replay of on the left; with `other` the newest turns of the two."""
    events = await _all(conversations, conversation)
    started = next((event for event in reversed(events) if event.type == "replay.started"), None)
    if other is not None:
        left = _newest(other, await _all(conversations, other))
        return compare(left, _newest(conversation, events))
    if started is None or started.turn is None:
        raise InvalidError(
            "comparison.with_what", f"{conversation!r} is no replay: say which conversation to compare it with."
        )
    replay = started.data
    origin = ConversationId(replay["conversation"])
    recorded = await read_between(conversations, origin, replay["first"], replay["last"])
    left = side_of(origin, replay["turn"], recorded)
    parted = [event.data for event in events if event.type == "replay.parted" and event.turn == started.turn]
    return compare(left, side_of(conversation, started.turn, events), parted[0] if parted else None)


async def _all(conversations: Conversations, conversation: ConversationId) -> list[Event]:
    found = await conversations.get(conversation)
    return await read_between(conversations, conversation, 1, found.head)


def _newest(conversation: ConversationId, events: list[Event]) -> Side:
    turn: TurnId | None = next((event.turn for event in reversed(events) if event.type == "turn.started"), None)
    if turn is None:
        raise NotFoundError(
            "comparison.no_turn", f"No turn has begun in {conversation!r}: there is nothing to compare."
        )
    return side_of(conversation, turn, events)
