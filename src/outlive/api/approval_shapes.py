"""The shapes of the API about approvals: what may be sent, and what is answered. As in `shapes`."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from outlive.conversation.approvals import COMMENT_LIMIT, Approval, ApprovalState, Decision

APPROVAL_PATTERN = "^appr_[0-9a-f]{32}$"


class NewDecision(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    decision: Decision
    comment: Annotated[
        str | None,
        StringConstraints(max_length=COMMENT_LIMIT),
        Field(description="Told to the agent. To a question of the agent's own it is the answer."),
    ] = None
    amount: Annotated[
        float | None,
        Field(gt=0, le=10**12, description="By how much the budget is raised that this is about; else as asked for."),
    ] = None


class ApprovalsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str | None, StringConstraints(pattern=APPROVAL_PATTERN)] = None
    state: Annotated[ApprovalState | None, Field(description="Only those in this state.")] = None


class ApprovalShown(BaseModel):
    id: str
    state: ApprovalState
    conversation: str
    turn: str | None
    question: str
    proposal: str | None
    tool: str | None
    arguments: dict[str, Any] | None
    effect: str | None
    digest: str | None
    requested_at: str
    expires_at: str
    decided_by: str | None
    decided_at: str | None
    comment: str | None
    budget: dict[str, Any] | None


class ApprovalPage(BaseModel):
    items: list[ApprovalShown]
    next: str | None


def approval_json(approval: Approval) -> dict[str, Any]:
    return approval._asdict()
