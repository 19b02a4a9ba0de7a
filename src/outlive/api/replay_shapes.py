"""The shapes of replays and comparisons: what may be asked, and what is answered."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from outlive.api.shapes import ConversationRef, ModelRef, Seq


class NewReplay(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    model: ModelRef
    at: Annotated[Seq | None, Field(description="An event of the turn; left out: the last turn that ended.")] = None
    execute: Annotated[bool, Field(description="Really do what the recording has no result for.")] = False


class ComparisonQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    other: Annotated[
        ConversationRef | None,
        Field(
            alias="with", description="Compare with the newest turn of this one; left out: with what it is a replay of."
        ),
    ] = None


class ComparedSide(BaseModel):
    conversation: str
    turn: str
    agent: str | None
    version: int | None
    model: str | None
    outcome: str | None
    reason: str | None
    answers: int
    calls: int
    usage: dict[str, int]
    cost: float | None
    seconds: float | None


class ComparedStep(BaseModel):
    kind: Literal["answer", "tool"]
    text: str
    name: str | None
    arguments: dict[str, Any] | None
    outcome: str | None
    exit_code: int | None


class ComparedRow(BaseModel):
    same: bool
    left: ComparedStep | None
    right: ComparedStep | None


class ComparisonShown(BaseModel):
    left: ComparedSide
    right: ComparedSide
    rows: list[ComparedRow]
    parted: dict[str, Any] | None
