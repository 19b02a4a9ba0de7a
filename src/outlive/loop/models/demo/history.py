"""A conversation as the demo model sees it: what was asked, what it has done about it, and what came of that. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.loop.models.messages import AssistantMessage, Message, Note, ToolCall, ToolResultMessage, UserMessage

_TASK = re.compile(
    r"\b(fail\w*|fix\w*|mend\w*|repair\w*|broken|red)\b.*\btests?\b|\btests?\b.*\b(fail\w*|pass\w*|fix\w*|green|broken)\b"
    r"|\bgo on\b|\bcontinue\b",
    re.IGNORECASE | re.DOTALL,
)
# What was done in a machine before one of these is not there any more.
_GONE = re.compile(r"^The machine (is lost|was restored from a checkpoint)")


@dataclass(frozen=True, slots=True)
class Thought:
    """What to say, and what to have done: names of tools with their arguments."""

    text: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """A call and what came of it."""

    name: str
    arguments: Mapping[str, Any]
    output: str
    is_error: bool

    @property
    def is_unknown(self) -> bool:
        return self.is_error and self.output.startswith("What came of this call is unknown")


@dataclass(frozen=True, slots=True)
class Asked:
    """What has to be answered now. `aside`: said meanwhile, and not answered yet."""

    text: str
    is_task: bool
    done: tuple[Done, ...] = ()
    aside: str | None = None


def is_task(text: str) -> bool:
    """Whether somebody wants a failing test to pass, or wants us to go on."""
    return bool(_TASK.search(text))


def read_history(messages: Sequence[Message]) -> Asked:
    """A task is worked on until it has an answer that calls nothing; whatever else was said meanwhile is an aside."""
    said = [at for at, message in enumerate(messages) if isinstance(message, UserMessage)]
    if not said:
        return Asked("", is_task=False)
    newest = said[-1]
    for at in reversed(said):
        if is_task(_text(messages[at])):
            rest = messages[at + 1 :]
            if any(isinstance(each, AssistantMessage) and not each.tool_calls for each in rest):
                break  # it was answered
            aside = _text(messages[newest]) if newest != at and _is_unanswered(messages, newest) else None
            return Asked(_text(messages[at]), is_task=True, done=_done(rest), aside=aside)
    return Asked(_text(messages[newest]), is_task=False, done=_done(messages[newest + 1 :]))


def _text(message: Message) -> str:
    return message.text if isinstance(message, UserMessage) else ""


def _is_unanswered(messages: Sequence[Message], at: int) -> bool:
    return not any(isinstance(message, AssistantMessage) for message in messages[at + 1 :])


def _done(messages: Sequence[Message]) -> tuple[Done, ...]:
    calls: dict[str, ToolCall] = {}
    done: list[Done] = []
    for message in messages:
        match message:
            case AssistantMessage(tool_calls=made):
                calls |= {call.id: call for call in made}
            case ToolResultMessage(call=id) if id in calls:
                call = calls[id]
                done.append(Done(call.name, call.arguments, message.output, message.is_error))
            case Note(text=text) if _GONE.search(text):
                done.clear()
    return tuple(done)
