"""Messages in the order that providers ask for: an answer of the model, then all that came back. Pure.

Whatever was said between two answers is one group: results of tools first (every provider wants them right behind the
calls), then what people and the runtime said, in its order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from outlive.loop.models.messages import AssistantMessage, Message, Note, ToolResultMessage, UserMessage


@dataclass(slots=True)
class Said:
    """All that the model is told between two answers of its own."""

    results: list[ToolResultMessage] = field(default_factory=list)
    words: list[UserMessage | Note] = field(default_factory=list)


def grouped(messages: Sequence[Message]) -> Iterator[AssistantMessage | Said]:
    said = Said()
    for message in messages:
        match message:
            case AssistantMessage():
                if not (message.text.strip() or message.tool_calls):
                    continue  # nothing was answered, and no provider takes an empty message
                if said.results or said.words:
                    yield said
                    said = Said()
                yield message
            case ToolResultMessage():
                said.results.append(message)
            case UserMessage() | Note():
                said.words.append(message)
    if said.results or said.words:
        yield said


def words_of(message: UserMessage | Note) -> str:
    """What the model reads. A note is marked, so that it is not taken for something a person said."""
    if isinstance(message, Note):
        return f"<note>{message.text}</note>"
    return message.text if message.text.strip() or message.images else "(an empty message)"
