"""LAYER: what was said and done. An append-only, retry-aware log, the feed over it, and what a person sees of both.

Never imports the loop, a machine or Temporal.
"""

from outlive.conversation.blobs import BLOB_LIMIT, INLINE_LIMIT, Blobs, is_blob_name
from outlive.conversation.conversations import Conversations, Following, Sent
from outlive.conversation.events import DURABLE, SEQ_MAX, Attachment, Delta, Event, EventData, NewEvent, Rewound
from outlive.conversation.feed import Feed
from outlive.conversation.follower import Frame
from outlive.conversation.log import (
    READ_LIMIT,
    Append,
    Appended,
    Catalog,
    Conversation,
    ConversationState,
    EventLog,
    OpenAttempt,
    OpenTurn,
    Writer,
)
from outlive.conversation.position import START, Position, format_position, parse_position, tag_of
from outlive.conversation.projection import Transcript
from outlive.conversation.upcast import typed, upcast
from outlive.conversation.writer import StepWriter, start_step

__all__ = [
    "BLOB_LIMIT",
    "DURABLE",
    "INLINE_LIMIT",
    "READ_LIMIT",
    "SEQ_MAX",
    "START",
    "Append",
    "Appended",
    "Attachment",
    "Blobs",
    "Catalog",
    "Conversation",
    "ConversationState",
    "Conversations",
    "Delta",
    "Event",
    "EventData",
    "EventLog",
    "Feed",
    "Following",
    "Frame",
    "NewEvent",
    "OpenAttempt",
    "OpenTurn",
    "Position",
    "Rewound",
    "Sent",
    "StepWriter",
    "Transcript",
    "Writer",
    "format_position",
    "is_blob_name",
    "parse_position",
    "start_step",
    "tag_of",
    "typed",
    "upcast",
]
