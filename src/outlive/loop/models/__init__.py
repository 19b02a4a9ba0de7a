"""Models: the port, what is said through it in words of no provider, and how its errors are told apart.

The SDK of a provider is imported when its client is first used: each costs a second and tens of megabytes.
"""

from outlive.loop.models.client import ModelClient
from outlive.loop.models.messages import (
    Answer,
    AssistantMessage,
    Image,
    Message,
    ModelRequest,
    Note,
    Piece,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolResultMessage,
    ToolSpec,
    Usage,
    UserMessage,
)

__all__ = [
    "Answer",
    "AssistantMessage",
    "Image",
    "Message",
    "ModelClient",
    "ModelRequest",
    "Note",
    "Piece",
    "StopReason",
    "TextDelta",
    "ThinkingDelta",
    "ToolCall",
    "ToolResultMessage",
    "ToolSpec",
    "Usage",
    "UserMessage",
]
