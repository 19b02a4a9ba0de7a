"""An answer while it grows: what the clients of all providers share. Pure.

Every bound on what a provider may send is here: characters of an answer, of a call's arguments, of one delta, and the
number of calls. An answer that is too long ends the step; arguments that are too long become a call that says so.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import JsonValue

from outlive.loop.models.errors import AnswerTooLongError, GarbledError
from outlive.loop.models.messages import Answer, Piece, TextDelta, ThinkingDelta, ToolCall

ANSWER_LIMIT = 8 * 1024 * 1024  # characters, thinking and arguments included
ARGUMENTS_LIMIT = 1024 * 1024  # characters of one call
CALLS_LIMIT = 128
DELTA_LIMIT = 8 * 1024  # characters
_NAME_LIMIT = 200

_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Fold(Protocol):
    """Turns the events of one provider's stream into pieces."""

    @property
    def is_underway(self) -> bool:
        """Whether any of the answer has come."""
        ...

    def take(self, event: Mapping[str, Any]) -> Iterator[Piece]: ...

    def answer(self) -> Answer:
        """The whole, once the stream is over. Raises OutageError if it ended in the middle."""
        ...


def garbled(provider: str, what: str) -> GarbledError:
    return GarbledError(
        "model.garbled", f"What {provider} sent is not its language: {what}. Is its base URL right?", provider=provider
    )


def whole_text(text: str) -> str:
    """Halves of a character that came in two pieces are put together; a half that stays alone becomes U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Spelling:
    """Text that comes in pieces, passed on in pieces that are whole characters and not too long."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._half = ""

    def take(self, text: str) -> Iterator[str]:
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        text = whole_text(text)
        for start in range(0, len(text), DELTA_LIMIT):
            piece = text[start : start + DELTA_LIMIT]
            self.parts.append(piece)
            yield piece

    def __str__(self) -> str:
        return "".join(self.parts)


@dataclass(slots=True)
class GrowingCall:
    """A tool call of which pieces have come."""

    id: str
    name: str
    parts: list[str] = field(default_factory=list)
    length: int = 0
    given: dict[str, JsonValue] | None = None  # arguments that came whole, not as text

    def take(self, text: str) -> None:
        self.length += len(text)
        if self.length <= ARGUMENTS_LIMIT:
            self.parts.append(text)

    def finished(self, is_cut: bool) -> ToolCall:
        """The call; `is_cut`: the answer reached its limit of tokens inside it."""
        name = whole_text(self.name)[:_NAME_LIMIT]
        arguments, error = self._read()
        if is_cut:
            arguments, error = {}, "the call was cut off: the answer reached its limit of tokens"
        return ToolCall(self.id, name, arguments, error)

    def _read(self) -> tuple[dict[str, JsonValue], str | None]:
        if self.length > ARGUMENTS_LIMIT:
            return {}, f"the arguments have {self.length} characters, more than {ARGUMENTS_LIMIT}"
        text = "".join(self.parts)
        if not text.strip():
            return self.given or {}, None
        try:
            value = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            return {}, f"the arguments are not valid JSON: {error}"
        if not isinstance(value, dict):
            return {}, f"the arguments are not a JSON object but {type(value).__name__}"
        return value, None


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number in JSON")


class Growth:
    """Counts what has come of one answer, and ends it when that is too much."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._length = 0
        self.text = Spelling()
        self.thinking_came = False

    @property
    def is_underway(self) -> bool:
        return self._length > 0

    def count(self, text: str) -> None:
        self._length += len(text)
        if self._length > ANSWER_LIMIT:
            raise AnswerTooLongError(
                "model.answer_too_long",
                f"{self._provider} sent an answer of more than {ANSWER_LIMIT} characters.",
                provider=self._provider,
            )

    def count_calls(self, number: int) -> None:
        if number > CALLS_LIMIT:
            raise AnswerTooLongError(
                "model.answer_too_long",
                f"{self._provider} sent an answer with more than {CALLS_LIMIT} tool calls.",
                provider=self._provider,
            )

    def say(self, text: str) -> Iterator[TextDelta]:
        self.count(text)
        for piece in self.text.take(text):
            yield TextDelta(piece)

    def think(self, text: str, spelling: Spelling) -> Iterator[ThinkingDelta]:
        self.count(text)
        for piece in spelling.take(text):
            yield ThinkingDelta(piece)


def with_ids_of_their_own(calls: list[ToolCall]) -> tuple[ToolCall, ...]:
    """Calls with ids that are there and differ: not every server that speaks a provider's language gives such."""
    seen: set[str] = set()
    result = []
    for number, call in enumerate(calls, 1):
        id = whole_text(call.id)[:_NAME_LIMIT] or f"call_{number}"
        while id in seen:
            id = f"{id}_{number}"
        seen.add(id)
        result.append(ToolCall(id, call.name, call.arguments, call.error))
    return tuple(result)
