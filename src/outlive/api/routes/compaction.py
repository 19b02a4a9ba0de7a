"""Compaction and pins: having what is old summarised, and what stays word for word. In the log before it is answered,
and before the loop is told."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.paging import page_of
from outlive.api.parts import parts_of, principal_of
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.shapes import CompactionAsked, NewCompaction, NoQuery, PinsShown, ShortNumberedQuery
from outlive.base import NotFoundError, OperationId, is_id
from outlive.governance import Answer
from outlive.loop.pinning import Pin, Pins
from outlive.loop.steering import Steering

router = APIRouter(prefix="/v1")

MessageInPath = Annotated[str, Path(json_schema_extra={"pattern": "^msg_[0-9a-f]{32}$"})]


def _message_id(text: str) -> str:
    if not is_id(text, "msg"):
        raise NotFoundError("message.not_found", f"There is no message {text[:64]!r} in this conversation.")
    return text


@router.post(
    "/conversations/{conversation}/compact",
    status_code=202,
    response_model=CompactionAsked,
    responses=problems(404, 408, 409, 413, 415, 503),
    openapi_extra=takes(NewCompaction, required=False),
)
async def compact_conversation(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Have what is old summarised before the next step of the turn that is open; if none is, before the first of the
    next one. Asked for already: nothing changes."""
    id, by = conversation_id(conversation), principal_of(request)
    body = await read_body(request, NewCompaction, may_be_empty=True)
    parts = parts_of(request)

    async def act(operation: OperationId) -> Answer:
        steering = Steering(parts.conversations, parts.loop)
        state = await steering.compact(operation, id, actor=by.id, keep=body.keep)
        return json_answer(202, {"conversation": id, "turn": state.turn.id if state.turn is not None else None})

    return await run_once(request, act)


def _shown(pins: Sequence[Pin], following: int | None = None) -> Response:
    items: list[dict[str, Any]] = [pin._asdict() for pin in pins]
    return to_response(json_answer(200, {"items": items, "next": following}))


@router.get("/conversations/{conversation}/pins", response_model=PinsShown, responses=problems(404))
async def list_pins(
    request: Request, conversation: IdInPath, query: Annotated[ShortNumberedQuery, Query()]
) -> Response:
    """What is pinned, in the order in which it was said."""
    found = await Pins(parts_of(request).conversations).find(conversation_id(conversation))
    return _shown(*page_of(found, lambda pin: pin.seq, after=query.cursor, limit=query.limit))


@router.put(
    "/conversations/{conversation}/pins/{message}", response_model=PinsShown, responses=problems(404, 409, 429, 503)
)
async def pin_message(
    request: Request, conversation: IdInPath, message: MessageInPath, _: Annotated[NoQuery, Query()]
) -> Response:
    """Pin a message: models are told it word for word, also when what is around it was summarised. Again: nothing
    changes."""
    return await _change(request, conversation, message, is_pinned=True)


@router.delete(
    "/conversations/{conversation}/pins/{message}", response_model=PinsShown, responses=problems(404, 409, 503)
)
async def unpin_message(
    request: Request, conversation: IdInPath, message: MessageInPath, _: Annotated[NoQuery, Query()]
) -> Response:
    """Let it be summarised like any other. Again: nothing changes."""
    return await _change(request, conversation, message, is_pinned=False)


async def _change(request: Request, conversation: str, message: str, *, is_pinned: bool) -> Response:
    pins, by = Pins(parts_of(request).conversations), principal_of(request)
    id, name = conversation_id(conversation), _message_id(message)
    return _shown(await pins.change(id, name, actor=by.id, is_pinned=is_pinned))
