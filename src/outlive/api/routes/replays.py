"""Replays: a turn that is over, run again on another model; and two turns side by side."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import parts_of, principal_of
from outlive.api.replay_shapes import ComparisonQuery, ComparisonShown, NewReplay
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.routes.messages import submit
from outlive.api.shapes import ConversationShown, NoQuery, conversation_json
from outlive.base import OperationId
from outlive.governance import Answer
from outlive.loop.replays import compare_turns, start_replay

router = APIRouter(prefix="/v1")


@router.post(
    "/conversations/{conversation}/replay",
    status_code=201,
    response_model=ConversationShown,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewReplay),
)
async def replay_turn(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Run a turn that is over again, on another model, in a conversation of its own: its calls are answered from the
    recording as long as they are those of the recording, and nothing is done unless `execute` says so."""
    of = conversation_id(conversation)
    body = await read_body(request, NewReplay)
    parts = parts_of(request)

    async def act(operation: OperationId) -> Answer:
        made, turn = await start_replay(
            parts.conversations,
            operation,
            of,
            actor=principal_of(request).id,
            model=body.model,
            at=body.at,
            execute=body.execute,
        )
        await submit(parts.loop, made.id, turn)
        return json_answer(201, conversation_json(made), ("location", f"/v1/conversations/{made.id}"))

    return await run_once(request, act)


@router.get("/conversations/{conversation}/comparison", response_model=ComparisonShown, responses=problems(404))
async def compare_conversations(
    request: Request, conversation: IdInPath, query: Annotated[ComparisonQuery, Query()]
) -> Response:
    """Two turns side by side: a replay beside what it is a replay of, or the newest turns of two conversations."""
    other = conversation_id(query.other) if query.other is not None else None
    found = await compare_turns(parts_of(request).conversations, conversation_id(conversation), other)
    return to_response(json_answer(200, found.to_json()))
