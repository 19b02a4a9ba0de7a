"""The shapes of the API about budgets: what may be sent, and what is answered. As in `shapes`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from outlive.conversation.events import BudgetRaised
from outlive.loop.budgets.amounts import SECONDS_LIMIT, STEPS_LIMIT, TOKENS_LIMIT, USD_LIMIT


class NewRaise(BaseModel):
    """What is added to the limits that there are."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tokens: Annotated[int, Field(ge=0, le=TOKENS_LIMIT)] = 0
    usd: Annotated[float, Field(ge=0, le=USD_LIMIT)] = 0.0
    steps: Annotated[int, Field(ge=0, le=STEPS_LIMIT)] = 0
    seconds: Annotated[float, Field(ge=0, le=SECONDS_LIMIT)] = 0.0
    scope: Annotated[
        Literal["turn", "conversation", "both"], Field(description="Of the open turn, of the conversation, or of both.")
    ] = "both"

    @model_validator(mode="after")
    def _gives_something(self) -> "NewRaise":
        if not (self.tokens or self.usd or self.steps or self.seconds):
            raise ValueError("name at least one of tokens, usd, steps and seconds")
        return self

    def to_event(self) -> BudgetRaised:
        return BudgetRaised(**self.model_dump())


class BudgetShown(BaseModel):
    """`limits` with what was added. `question`: what a person is asked about it now."""

    limits: dict[str, dict[str, float]]
    used: dict[str, dict[str, float]]
    question: dict[str, Any] | None
