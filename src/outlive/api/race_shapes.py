"""The shapes of the API about races: what may be sent, and what is answered. As in `shapes`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from outlive.api.shapes import ConversationRef, ModelRef, Name
from outlive.loop.races.race import CONTESTANTS_LEAST, CONTESTANTS_MOST, PROMPT_LIMIT, Contestant


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NewContestant(_Sent):
    """What is left out is as the conversation has it."""

    model: ModelRef | None = None
    agent: Name | None = None

    def to_contestant(self) -> Contestant:
        return Contestant(model=self.model, agent=self.agent)


class NewRace(_Sent):
    prompt: Annotated[str, StringConstraints(min_length=1, max_length=PROMPT_LIMIT)]
    contestants: Annotated[list[NewContestant], Field(min_length=CONTESTANTS_LEAST, max_length=CONTESTANTS_MOST)]


class NewChoice(_Sent):
    conversation: Annotated[ConversationRef, Field(description="Of the contestant that is kept.")]


class UsageShown(BaseModel):
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class ContestantShown(BaseModel):
    number: int
    conversation: str
    machine: str | None
    model: str | None
    agent: str | None
    state: Literal["starting", "running", "waiting", "ended", "failed", "chosen", "let_go"]
    outcome: str | None
    reason: str | None
    answer: str
    steps: int
    usage: UsageShown
    cost: float | None


class RaceShown(BaseModel):
    id: str
    conversation: str
    at: int
    prompt: str
    state: Literal["starting", "running", "ended", "letting_go", "chosen"]
    chosen: str | None
    contestants: list[ContestantShown]
    created_by: str
    created_at: str
