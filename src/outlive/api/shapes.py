"""The shapes of the API: what may be sent, and what is answered.

What is sent is parsed into these models, strictly: unknown fields are refused and nothing is converted. What is
answered is only described by them (for the OpenAPI document): answers are written as text, and a test holds both
together.
"""

import base64
import binascii
import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, StringConstraints
from pydantic.json_schema import WithJsonSchema

from outlive.api.budget_shapes import BudgetShown
from outlive.base import Kind, is_id
from outlive.conversation.blobs import is_blob_name
from outlive.conversation.events import SEQ_MAX, ModelScope
from outlive.conversation.log import Conversation, ConversationState
from outlive.loop.compacting import KEEP_LIMIT
from outlive.loop.follow_ups import ORDER_LIMIT
from outlive.loop.models.registry import parse_model
from outlive.loop.subagents import link_of

METADATA_LIMIT = 32 * 1024  # bytes, as JSON
ATTACHMENTS_LIMIT = 32
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_PLAIN = r"^[^\x00-\x1f\x7f]*$"

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_PLAIN)]
Title = Annotated[str, StringConstraints(max_length=500, pattern=_PLAIN)]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_PLAIN)]
MediaType = Annotated[
    str,
    StringConstraints(max_length=127, pattern=r"^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*$"),
]
Seq = Annotated[int, Field(ge=1, le=SEQ_MAX)]


def _check_conversation_id(text: str) -> str:
    if not is_id(text, "conv"):
        raise ValueError("is not the id of a conversation")
    return text


def _check_message_id(text: str) -> str:
    if not is_id(text, "msg"):
        raise ValueError("is not the id of a message")
    return text


def _check_model(text: str) -> str:
    """As it is priced, if anything here could ask it. Raises the loop's own error, which says what there is."""
    return str(parse_model(text))


def _check_blob_name(text: str) -> str:
    if not is_blob_name(text):
        raise ValueError("is not the name of a blob")
    return text


def _decode_base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("is not base64 in a string")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64") from None


def _check_metadata(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
    text = json.dumps(metadata)
    if len(text) > METADATA_LIMIT:
        raise ValueError(f"is larger than {METADATA_LIMIT} bytes")
    if _ESCAPED_NUL.search(text):
        raise ValueError("has a NUL character")
    return metadata


ConversationRef = Annotated[
    str,
    AfterValidator(_check_conversation_id),
    WithJsonSchema({"type": "string", "pattern": "^conv_[0-9a-f]{32}$"}),
]
MessageRef = Annotated[
    str, AfterValidator(_check_message_id), WithJsonSchema({"type": "string", "pattern": "^msg_[0-9a-f]{32}$"})
]
BlobName = Annotated[
    str, AfterValidator(_check_blob_name), WithJsonSchema({"type": "string", "pattern": "^b3_[0-9a-f]{64}$"})
]
ModelRef = Annotated[Name, AfterValidator(_check_model), Field(description="provider:name")]
Base64 = Annotated[
    bytes, BeforeValidator(_decode_base64), WithJsonSchema({"type": "string", "contentEncoding": "base64"})
]
Metadata = Annotated[
    dict[str, JsonValue],
    AfterValidator(_check_metadata),
    WithJsonSchema({"type": "object", "additionalProperties": {}}),
]


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ParentRef(_Sent):
    conversation: ConversationRef
    at: Seq


class NewConversation(_Sent):
    """What is left out of a fork is taken from its parent."""

    agent: Name | None = None
    title: Title | None = None
    environment: Name | None = None
    model: ModelRef | None = None
    metadata: Metadata | None = None
    parent: ParentRef | None = None


class NewFork(_Sent):
    at: Annotated[Seq | None, Field(description="Share everything up to this event; left out: everything.")] = None
    model: ModelRef | None = None
    machine: Annotated[
        Literal["none", "fork"],
        Field(description="`fork`: a copy of the machine it had then, from the checkpoint nearest to `at`."),
    ] = "none"


class NewInterrupt(_Sent):
    reason: Annotated[str | None, Field(max_length=1000, description="Said in the log, and to the agent.")] = None


class NewPause(_Sent):
    reason: Annotated[str | None, Field(max_length=1000, description="Said in the log.")] = None


class NewModel(_Sent):
    model: ModelRef
    scope: Annotated[ModelScope, Field(description="For the turn that is open, or for later ones too.")] = "turn"


class NewCompaction(_Sent):
    keep: Annotated[
        int | None,
        Field(
            ge=1, le=KEEP_LIMIT, description="How many of the newest parts stay as they are; else as the agent has it."
        ),
    ] = None


class AttachedData(_Sent):
    name: FileName
    media_type: MediaType
    data: Base64


class AttachedBlob(_Sent):
    name: FileName
    media_type: MediaType
    blob: BlobName


class NewMessage(_Sent):
    text: Annotated[str, StringConstraints(min_length=1)]
    attachments: Annotated[list[AttachedData | AttachedBlob], Field(max_length=ATTACHMENTS_LIMIT)] = []
    model: ModelRef | None = None
    when: Annotated[
        Literal["next", "now"],
        Field(description="`next`: read at the next step. `now`: the step that is under way is stopped for it."),
    ] = "next"


class NewOrder(_Sent):
    order: Annotated[list[MessageRef], Field(max_length=ORDER_LIMIT, description="All messages that wait, each once.")]


# ── queries ──


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuery(_Asked):
    pass


class PageQuery(_Asked):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str | None, Field(max_length=100)] = None


class ShortListQuery(_Asked):
    """Of a list that is short by nature: nobody has to turn pages unless they ask for small ones."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 1000
    cursor: Annotated[str | None, Field(max_length=100)] = None


class ShortNumberedQuery(_Asked):
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000
    cursor: Annotated[int, Field(ge=0, le=2**53)] = 0


class ListQuery(_Asked):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str | None, Field(max_length=100)] = None
    q: Annotated[str | None, StringConstraints(max_length=500, pattern=r"^[^\x00]*$")] = None
    archived: bool = False


class ArchiveQuery(_Asked):
    interrupt: bool = False


class EventsQuery(_Asked):
    after: Annotated[int, Field(ge=0, le=SEQ_MAX)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[int | None, Field(ge=0, le=SEQ_MAX, description="The same as `after`, and wins.")] = None


class StreamQuery(_Asked):
    after: Annotated[str | None, Field(description="A position; the header Last-Event-ID wins.")] = None
    deltas: bool = True


# ── answers, for the OpenAPI document ──


class ParentShown(BaseModel):
    conversation: str
    at: int


class SubagentOfShown(BaseModel):
    """The step whose subagent a conversation is."""

    conversation: str
    turn: str
    step: str
    detached: bool
    machine: Literal["same", "fork", "new"]
    depth: int


class ConversationShown(BaseModel):
    id: str
    agent: str | None
    title: str | None
    environment: str | None
    model: str | None
    metadata: dict[str, Any]
    parent: ParentShown | None
    subagent_of: SubagentOfShown | None
    state: ConversationState
    turn: str | None
    machine: str | None
    head: int
    created_by: str
    created_at: str
    updated_at: str
    archived_at: str | None


class ConversationWithBudget(ConversationShown):
    budget: Annotated[
        BudgetShown | None, Field(description="What it may use and has used; left out if its agent has no budget.")
    ] = None


class ConversationPage(BaseModel):
    items: list[ConversationShown]
    next: str | None


class MessageShown(BaseModel):
    message_id: str
    turn_id: str
    seq: int


class FollowUpShown(BaseModel):
    """A message that waits. `text` is its beginning."""

    id: str
    seq: int
    text: str
    is_whole: bool
    attachments: int
    actor: str
    at: str
    when: Literal["next", "now"]


class QueueShown(BaseModel):
    items: list[FollowUpShown]
    next: str | None


class EventShown(BaseModel):
    id: str
    seq: int | None
    position: str
    conversation: str
    turn: str | None
    step: str | None
    attempt: int | None
    type: str
    v: int
    at: str
    actor: str
    data: dict[str, Any]


class EventPage(BaseModel):
    items: list[EventShown]
    next: int | None


class TranscriptShown(BaseModel):
    conversation: str
    head: int
    position: str
    state: ConversationState
    items: list[dict[str, Any]]


class CompactionAsked(BaseModel):
    """`turn`: the one that does it. None: the next one, before anything else."""

    conversation: str
    turn: str | None


class PinShown(BaseModel):
    message: str
    seq: int
    text: str
    tokens: Annotated[int, Field(description="About.")]


class PinsShown(BaseModel):
    items: list[PinShown]
    next: int | None


class FieldProblem(BaseModel):
    at: str
    message: str
    type: str


class Problem(BaseModel):
    """Every error. `kind` says what to do, `code` says exactly what it was and never changes."""

    kind: Kind
    code: str
    title: str
    detail: str
    status: int
    errors: list[FieldProblem] = []


class Health(BaseModel):
    status: Literal["ok"]


class Ready(BaseModel):
    ready: bool
    parts: dict[str, bool]


def conversation_json(conversation: Conversation) -> dict[str, Any]:
    shown = conversation._asdict()
    parent = conversation.parent
    shown["parent"] = {"conversation": parent[0], "at": parent[1]} if parent else None
    link = link_of(conversation.id, conversation.metadata)
    shown["subagent_of"] = None if link is None else link.model_dump(include=set(SubagentOfShown.model_fields))
    return shown
