"""Messages to a conversation. A message is durable before it is answered, and before the loop is told."""

import logging
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import principal_of, state_of
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.shapes import AttachedBlob, AttachedData, MessageShown, NewMessage, NoQuery
from outlive.base import ConversationId, InvalidError, NotFoundError, OperationId, OutliveError, TurnId
from outlive.conversation.blobs import Blobs
from outlive.conversation.events import Attachment
from outlive.governance import Answer
from outlive.loop.client import LoopClient

_log = logging.getLogger(__name__)

router = APIRouter(prefix="/v1")


@router.post(
    "/conversations/{conversation}/messages",
    status_code=202,
    response_model=MessageShown,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewMessage),
)
async def send_message(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Record a message. It joins the turn that is open, or begins one."""
    to = conversation_id(conversation)
    body = await read_body(request, NewMessage)
    state = state_of(request)
    conversations = state.parts.conversations

    async def act(operation: OperationId) -> Answer:
        attachments = [await _attach(conversations.blobs, each) for each in body.attachments]
        sent = await conversations.send(
            operation,
            to,
            actor=principal_of(request).id,
            text=body.text,
            attachments=attachments,
            model=body.model,
            is_hurried=body.when == "now",
        )
        state.metrics.messages.inc()
        await submit(state.parts.loop, to, sent.turn)
        return json_answer(202, {"message_id": sent.message, "turn_id": sent.turn, "seq": sent.seq})

    return await run_once(request, act)


async def submit(loop: LoopClient | None, conversation: ConversationId, turn: TurnId | None = None) -> None:
    """Tell the loop of what is in the log. The message is durable: if nobody takes it now, the sweeper does later."""
    if loop is None:
        return
    try:
        await loop.submit(conversation, turn)
    except OutliveError as error:
        _log.warning("the loop was not told: %s", error.message, extra={"conversation": conversation})


async def _attach(blobs: Blobs, given: AttachedData | AttachedBlob) -> Attachment:
    if isinstance(given, AttachedData):
        name = await blobs.put(given.data)
        return Attachment(name=given.name, media_type=given.media_type, size=len(given.data), blob=name)
    try:
        size = len(await blobs.get(given.blob))
    except NotFoundError:
        raise InvalidError("attachment.unknown_blob", f"There is no blob {given.blob!r}; send its data.") from None
    return Attachment(name=given.name, media_type=given.media_type, size=size, blob=given.blob)
