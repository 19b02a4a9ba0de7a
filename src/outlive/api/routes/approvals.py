"""Approvals: what people are asked, and their decisions. A decision is durable before it is answered, and before the
loop is told."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.approval_shapes import (
    APPROVAL_PATTERN,
    ApprovalPage,
    ApprovalShown,
    ApprovalsQuery,
    NewDecision,
    approval_json,
)
from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import parts_of, principal_of
from outlive.api.routes.messages import submit
from outlive.api.shapes import NoQuery
from outlive.base import ApprovalId, CrashPoint, NotFoundError, OperationId, is_id, reach
from outlive.governance import Answer
from outlive.governance.identity import check_may_approve

router = APIRouter(prefix="/v1")

ApprovalInPath = Annotated[str, Path(json_schema_extra={"pattern": APPROVAL_PATTERN})]


def _approval_id(text: str) -> ApprovalId:
    if not is_id(text, "appr"):
        raise NotFoundError("approval.not_found", f"There is no approval {text[:64]!r}.")
    return ApprovalId(text)


@router.get("/approvals", response_model=ApprovalPage, responses=problems())
async def list_approvals(request: Request, query: Annotated[ApprovalsQuery, Query()]) -> Response:
    """Newest first."""
    found = await parts_of(request).approvals.list(
        limit=query.limit + 1, before=ApprovalId(query.cursor) if query.cursor else None, state=query.state
    )
    page = found[: query.limit]
    following = page[-1].id if len(found) > query.limit else None
    return to_response(json_answer(200, {"items": [approval_json(each) for each in page], "next": following}))


@router.get("/approvals/{approval}", response_model=ApprovalShown, responses=problems(404))
async def get_approval(request: Request, approval: ApprovalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """One approval as it stands."""
    return to_response(json_answer(200, approval_json(await parts_of(request).approvals.get(_approval_id(approval)))))


@router.post(
    "/approvals/{approval}",
    response_model=ApprovalShown,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewDecision),
)
async def decide_approval(request: Request, approval: ApprovalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Approve or deny. Once: a second decision is refused, as is one that comes too late."""
    id, by = _approval_id(approval), principal_of(request)
    body = await read_body(request, NewDecision)
    check_may_approve(by)
    parts = parts_of(request)

    async def act(operation: OperationId) -> Answer:
        decided = await parts.approvals.decide(
            operation, id, body.decision, actor=by.id, comment=body.comment, amount=body.amount
        )
        reach(CrashPoint.APPROVAL_AFTER_DECISION)
        await submit(parts.loop, decided.conversation)
        return json_answer(200, approval_json(decided))

    return await run_once(request, act)
