"""Pins: messages that whoever answers is told word for word, however long the conversation gets.

Rule 1: a pin is an event of the log, and so is its end. What is so already changes nothing.
Rule 2: a message that was withdrawn is told to nobody: it cannot be pinned, and its pin ends with it.
Rule 3: pins never fill what a model can read: there are at most `PINS_LIMIT`, of `PINS_TOKENS` together, as estimated.
"""

from typing import Any, NamedTuple

from outlive.base import ConflictError, ConversationId, ExhaustedError, NotFoundError, UnavailableError, to_text
from outlive.conversation.conversations import PAGE, Conversations
from outlive.conversation.events import Event, EventData, MessagePinned, MessageUnpinned, NewEvent
from outlive.conversation.log import Append
from outlive.conversation.upcast import upcast
from outlive.loop.fitting import IMAGE_TOKENS, estimate_tokens

PINS_LIMIT = 32
PINS_TOKENS = 8_000
_TRIES = 50  # while others write to the same conversation


class Pin(NamedTuple):
    """`seq`: of the message."""

    message: str
    seq: int
    text: str
    tokens: int


class PinFold:
    """Takes events one by one, from the first; knows what is pinned then. Pure."""

    def __init__(self) -> None:
        self.seq = 0
        self._messages: dict[str, Pin] = {}
        self._pinned: set[str] = set()
        self._withdrawn: set[str] = set()

    def take(self, event: Event) -> None:
        self.seq = event.seq
        match event.type:
            case "message.sent":
                data = upcast(event).data
                self._messages[data["message"]] = Pin(data["message"], event.seq, data["text"], _tokens(data))
            case "message.pinned":
                self._pinned.add(upcast(event).data["message"])
            case "message.unpinned":
                self._pinned.discard(upcast(event).data["message"])
            case "message.withdrawn":
                message = upcast(event).data["message"]
                self._withdrawn.add(message)
                self._pinned.discard(message)
            case _:
                pass

    @property
    def pins(self) -> list[Pin]:
        """In the order in which they were said."""
        return [pin for name, pin in self._messages.items() if name in self._pinned]

    def pin(self, message: str) -> EventData | None:
        """What is written so that it is pinned; None if it is. Refuses by raising."""
        found = self._messages.get(message)
        if found is None:
            raise NotFoundError(
                "message.not_found", f"There is no message {message[:64]!r} in this conversation: see its transcript."
            )
        if message in self._withdrawn:
            raise ConflictError("message.withdrawn", f"{message!r} was withdrawn: no model is told of it.")
        pins = self.pins
        if found in pins:
            return None
        if len(pins) >= PINS_LIMIT:
            raise ExhaustedError(
                "pins.too_many", f"{PINS_LIMIT} messages are pinned, which is the most: unpin one first."
            )
        tokens = sum(pin.tokens for pin in pins)
        if tokens + found.tokens > PINS_TOKENS:
            raise ExhaustedError(
                "pins.too_long",
                f"The message has about {found.tokens} tokens, those that are pinned {tokens}, and {PINS_TOKENS} is "
                "the most for all: unpin some, or send what matters in a shorter message and pin that.",
            )
        return MessagePinned(message=message)

    def unpin(self, message: str) -> EventData | None:
        """None if it is not pinned."""
        return MessageUnpinned(message=message) if message in self._pinned else None


def _tokens(data: dict[str, Any]) -> int:
    pictures: int = sum(each["media_type"].startswith("image/") for each in data["attachments"])
    return estimate_tokens(data["text"]) + IMAGE_TOKENS * pictures


class Pins:
    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def find(self, conversation: ConversationId) -> list[Pin]:
        await self._conversations.get(conversation)  # says so if there is none
        fold = PinFold()
        await self._catch_up(conversation, fold)
        return fold.pins

    async def change(self, conversation: ConversationId, message: str, *, actor: str, is_pinned: bool) -> list[Pin]:
        """Pin a message, or unpin it. In the log when this returns; what is pinned then."""
        await self._conversations.get(conversation)
        fold = PinFold()
        for _ in range(_TRIES):
            await self._catch_up(conversation, fold)
            news = fold.pin(message) if is_pinned else fold.unpin(message)
            if news is None:
                return fold.pins
            await self._append(conversation, fold.seq, actor, news)
        raise UnavailableError("pins.busy", "The conversation is written to all the time; try again.")

    async def _append(self, conversation: ConversationId, seq: int, actor: str, news: EventData) -> None:
        """Unless somebody wrote first: then it is looked at again."""
        new = NewEvent(news, to_text(self._conversations.clock.now()))
        turn = (await self._conversations.get(conversation)).turn
        try:
            await self._conversations.append(
                Append(conversation, (new,), key=f"pin/{new.id}", actor=actor, turn=turn, expect=seq)
            )
        except ConflictError as error:
            if error.code != "append.moved":
                raise

    async def _catch_up(self, conversation: ConversationId, fold: PinFold) -> None:
        while events := await self._conversations.read(conversation, fold.seq, PAGE):
            for event in events:
                fold.take(event)
