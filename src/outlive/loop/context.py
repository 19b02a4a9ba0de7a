"""The context of a model step: what the model is told, made from the log alone. Pure.

The same events give the same context, so a step that is tried again asks the same question. It is within the budget
whatever the log holds, has a result behind every call, and keeps what a person said last. How a conversation is told
is in `spoken.py`; what is left out of a long one is in `fitting.py`.

The budget is counted by an estimate. A provider that finds the context too long all the same is asked again with less.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outlive.conversation.events import Event
from outlive.loop.fitting import RESULT_BYTES, estimate_message, estimate_tokens, fit
from outlive.loop.models.messages import AssistantMessage, Image, Message, Note
from outlive.loop.spoken import units_of


@dataclass(frozen=True, slots=True)
class Bounds:
    """`tokens`: of the instructions and all messages together. `result_bytes`: of one tool's output."""

    tokens: int = 150_000
    result_bytes: int = RESULT_BYTES


BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Context:
    system: str
    messages: tuple[Message, ...]
    tokens: int  # as estimated, the instructions included


def build_context(
    events: Iterable[Event],
    *,
    before: int | None = None,
    instructions: str = "",
    bounds: Bounds = BOUNDS,
    images: Mapping[str, Image] | None = None,
) -> Context:
    """What the model is told at the step whose attempt started at event `before` (None: now).

    `events` are those of the conversation from its beginning, whole. `images` are the attached pictures that the caller
    has fetched, by their blob. Instructions are told whole: whoever defines an agent keeps them short.
    """
    spent = estimate_tokens(instructions)
    messages = fit(units_of(events, before, images), bounds.tokens - spent, bounds.result_bytes)
    if not messages or isinstance(messages[0], AssistantMessage):
        messages.insert(0, Note("Nobody has said anything yet." if not messages else "What came before is not known."))
    return Context(instructions, tuple(messages), spent + sum(estimate_message(each) for each in messages))
