"""Where the events of a fork are: the segments of the past it shares with its ancestors. Pure."""

from typing import NamedTuple

from outlive.base import ConflictError, ConversationId, InvalidError
from outlive.conversation.events import ConversationCreated, NewEvent
from outlive.conversation.log import beyond_head

DEPTH_LIMIT = 256  # segments of a shared past


class Segment(NamedTuple):
    """Events `first` to `last` are held by the conversation with this key, as its own."""

    key: int
    first: int
    last: int


def shared_past(parent: ConversationId, segments: list[Segment], at: int) -> list[Segment]:
    """What a fork of `parent`, which consists of `segments`, shares when it leaves at event `at`."""
    if at < 1:
        raise InvalidError("fork.at", f"A fork shares at least the first event of {parent!r}: `at` counts from 1.")
    head = segments[-1].last
    if at > head:
        raise beyond_head(parent, head, at)
    shared = [Segment(key, first, min(last, at)) for key, first, last in segments if first <= at]
    if len(shared) > DEPTH_LIMIT:
        raise ConflictError("fork.too_deep", f"{parent!r} is a fork of a fork, {DEPTH_LIMIT} deep: fork an older one.")
    return shared


def check_created(created: NewEvent) -> ConversationCreated:
    if not isinstance(created.data, ConversationCreated):
        raise InvalidError("create.event", f"A conversation begins with conversation.created, not {created.type!r}.")
    return created.data


def check_same(conversation: ConversationId, created: NewEvent, data_json: str, blob: str | None) -> None:
    """Whether making `conversation` again is the same making."""
    if (created.data_json, created.blob) != (data_json, blob):
        raise ConflictError("conversation.exists", f"There is a conversation {conversation!r} already, made otherwise.")
