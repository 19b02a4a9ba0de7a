"""Budgets: what a conversation may use and has used, and giving it more. A raise is durable before it is answered, and
before the loop is told."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.budget_shapes import BudgetShown, NewRaise
from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import parts_of, principal_of
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.routes.messages import submit
from outlive.api.shapes import NoQuery
from outlive.base import ConversationId, CrashPoint, OperationId, reach
from outlive.governance import Answer
from outlive.governance.identity import check_may_approve

router = APIRouter(prefix="/v1")


async def _shown(request: Request, conversation: ConversationId) -> dict[str, Any]:
    parts = parts_of(request)
    return (await parts.budgets.get(await parts.conversations.get(conversation))).to_json()


@router.get("/conversations/{conversation}/budget", response_model=BudgetShown, responses=problems(404, 409))
async def get_budget(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """What it may use, and has used."""
    return to_response(json_answer(200, await _shown(request, conversation_id(conversation))))


@router.post(
    "/conversations/{conversation}/budget",
    response_model=BudgetShown,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewRaise),
)
async def raise_budget(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Add to its limits. What lifts the limit that a person is asked about answers that question."""
    id, by = conversation_id(conversation), principal_of(request)
    body = await read_body(request, NewRaise)
    check_may_approve(by)
    parts = parts_of(request)

    async def act(operation: OperationId) -> Answer:
        await _shown(request, id)
        await parts.budgets.give(operation, id, body.to_event(), by.id)
        reach(CrashPoint.APPROVAL_AFTER_DECISION)
        if (await parts.conversations.get(id)).turn is not None:
            await submit(parts.loop, id)
        return json_answer(200, await _shown(request, id))

    return await run_once(request, act)
