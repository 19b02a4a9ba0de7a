"""What is said to a model and what it answers, in words of no provider. Types alone: pure, and small.

Rule 1: nothing here knows a provider, except that `blocks` are kept as they came. They are for the provider's own eyes
        (thinking with its signature), go back to the model that made them and to no other, and nobody looks inside.
Rule 2: a call whose arguments were no JSON object is still a call: `error` says what was wrong, so that the model can
        be told. A step never fails because a model wrote badly.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal"]


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that somebody attached."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model wants a tool run. With `error`, its arguments could not be read, and `arguments` is empty."""

    id: str
    name: str
    arguments: dict[str, JsonValue]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class UserMessage:
    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What a model answered earlier. `model` (`provider:name`) says whose the blocks are."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    blocks: tuple[JsonValue, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class ToolResultMessage:
    """What came of one call. `is_error`: it failed, was rejected or is lost; the output says which."""

    call: str
    name: str
    output: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the runtime tells the model and no person said: a machine was rebooted, old output was cut."""

    text: str


Message = UserMessage | AssistantMessage | ToolResultMessage | Note


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it. `parameters` is the JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model. `model` is the name alone, without its provider.

    `step` goes to the provider as a header, so that whoever keeps its records can tell which step a call belongs to.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 16_384
    effort: str | None = None  # a word of the provider's own, passed on: low, medium, high
    step: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """A piece of a call's arguments, as it came: a sign of life while a model writes a long file. Nobody runs it."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. `input_tokens` are those that were neither read from the cache nor written to it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer, once: the last thing of a stream that was not cut."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    blocks: tuple[JsonValue, ...] = ()
    usage: Usage = Usage()
    stop_reason: StopReason = "end_turn"


Piece = TextDelta | ThinkingDelta | ArgumentsDelta | Answer
