"""Steering the turn that is open: pause, resume. In the log before it is answered, and before the loop is told."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.machine_shapes import NoBody
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import parts_of, principal_of
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.shapes import ConversationShown, NewPause, NoQuery, conversation_json
from outlive.base import OperationId
from outlive.governance import Answer
from outlive.loop.steering import Steering

router = APIRouter(prefix="/v1")


def steering_of(request: Request) -> Steering:
    parts = parts_of(request)
    return Steering(parts.conversations, parts.loop)


@router.post(
    "/conversations/{conversation}/pause",
    response_model=ConversationShown,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewPause, required=False),
)
async def pause_turn(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Let the turn that is open wait from its next step on; a step that has begun is finished. Again: nothing
    changes."""
    id = conversation_id(conversation)
    body = await read_body(request, NewPause, may_be_empty=True)
    by = principal_of(request)

    async def act(operation: OperationId) -> Answer:
        found = await steering_of(request).pause(operation, id, actor=by.id, reason=body.reason)
        return json_answer(200, conversation_json(found))

    return await run_once(request, act)


@router.post(
    "/conversations/{conversation}/resume",
    response_model=ConversationShown,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NoBody, required=False),
)
async def resume_turn(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Let a turn that was paused go on where it was. Again: nothing changes."""
    id = conversation_id(conversation)
    await read_body(request, NoBody, may_be_empty=True)
    by = principal_of(request)

    async def act(operation: OperationId) -> Answer:
        return json_answer(200, conversation_json(await steering_of(request).resume(operation, id, actor=by.id)))

    return await run_once(request, act)
