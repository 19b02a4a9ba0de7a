"""Models: the port, what is said through it in words of no provider, and how its errors are told apart.

All of it is pure. `registry` has the clients: the SDK of a provider is imported when its client is first used, since
each costs a second and tens of megabytes.
"""

from outlive.loop.models.client import ModelClient, Patience
from outlive.loop.models.errors import (
    RETRIES,
    AnswerTooLongError,
    BadRequestError,
    ContextTooLongError,
    GarbledError,
    NoCreditError,
    OutageError,
    OverloadedError,
    RateLimitedError,
    RefusedError,
    UnauthorizedError,
    UnknownModelError,
    retry_delay_s,
)
from outlive.loop.models.messages import (
    Answer,
    ArgumentsDelta,
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
from outlive.loop.models.prices import cost_usd

__all__ = [
    "RETRIES",
    "Answer",
    "AnswerTooLongError",
    "ArgumentsDelta",
    "AssistantMessage",
    "BadRequestError",
    "ContextTooLongError",
    "GarbledError",
    "Image",
    "Message",
    "ModelClient",
    "ModelRequest",
    "NoCreditError",
    "Note",
    "OutageError",
    "OverloadedError",
    "Patience",
    "Piece",
    "RateLimitedError",
    "RefusedError",
    "StopReason",
    "TextDelta",
    "ThinkingDelta",
    "ToolCall",
    "ToolResultMessage",
    "ToolSpec",
    "UnauthorizedError",
    "UnknownModelError",
    "Usage",
    "UserMessage",
    "cost_usd",
    "retry_delay_s",
]
