"""What passes through Temporal between our workers and those of users: names and shapes. References only. Pure.

Workers of users may be older or newer than ours: a name is never changed, a field is only ever added, with a default.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from outlive.base import ConversationId, EffectId, TurnId

OFFER_TOOLS = "loop.offer_tools"  # on our queue
CALL_TOOL = "tools.call"  # on the queue of the worker that has it

TOOLS_LIMIT = 100  # of one queue


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True)


class OfferedTool(_Wire):
    """A tool as its worker describes it."""

    name: str = Field(pattern=r"^[A-Za-z0-9](?:_?[A-Za-z0-9-])*_?$", max_length=64)
    description: str = Field(min_length=1, max_length=8 * 1024)
    parameters: dict[str, JsonValue]
    runs: Literal["parallel", "in_turn"] = "in_turn"
    is_idempotent: bool = False
    timeout_s: float = Field(600.0, gt=0, le=86_400)


class Offer(_Wire):
    """All tools that are run on a queue; what is not here any more is gone. It is kept as a blob."""

    queue: str = Field(min_length=1, max_length=200)
    tools: tuple[OfferedTool, ...] = Field(max_length=TOOLS_LIMIT)


class OfferTask(_Wire):
    offer: str  # the blob


class OfferAnswer(_Wire):
    """`refused` says why nothing of it was taken."""

    refused: str | None = None


class CallTask(_Wire):
    """Run a tool. `arguments` is the blob that has them, as a JSON object."""

    effect: EffectId
    tool: str
    conversation: ConversationId
    turn: TurnId
    arguments: str


class CallAnswer(_Wire):
    """How it ended. `output` is the blob of what the model is told, or of what was returned if that is no text."""

    outcome: Literal["finished", "failed", "rejected", "lost"]
    output: str
    is_text: bool = True
