"""What an agent may use, as its definition says it. Pure.

Limits of a turn and of all turns of a conversation together. Those that stand in `budget` itself are of a turn.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outlive.base import InvalidError

TOKENS_LIMIT = 10**12
USD_LIMIT = 10**6
STEPS_LIMIT = 10**6
SECONDS_LIMIT = 366 * 24 * 3600


class Amounts(BaseModel):
    """What is not named has no limit. `seconds`: in which something of it ran; waiting is not counted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    tokens: Annotated[int | None, Field(ge=1, le=TOKENS_LIMIT, strict=True)] = None
    usd: Annotated[float | None, Field(gt=0, le=USD_LIMIT)] = None
    steps: Annotated[int | None, Field(ge=1, le=STEPS_LIMIT, strict=True)] = None
    seconds: Annotated[float | None, Field(gt=0, le=SECONDS_LIMIT)] = None

    def of(self, limit: str) -> float | None:
        value: float | None = getattr(self, limit)
        return value


class Budget(BaseModel):
    """`turn`: of each turn. `conversation`: of all turns of one together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turn: Amounts = Amounts()
    conversation: Amounts = Amounts()

    @property
    def has_money(self) -> bool:
        return self.turn.usd is not None or self.conversation.usd is not None

    @property
    def needs_estimate(self) -> bool:
        """Whether it has to be known what an answer may cost, before it is asked for."""
        return self.has_money or self.turn.tokens is not None or self.conversation.tokens is not None


def budget_of(given: Mapping[str, Any] | None) -> Budget | None:
    """As it was written down; None if nothing is limited. `agent.budget` (invalid) if it says what nobody here knows:
    who misspells a limit must not go without it."""
    is_flat = given is not None and bool(given) and not {"turn", "conversation"} & set(given)
    try:
        budget = Budget.model_validate({"turn": given} if is_flat else given or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("budget", *(str(part) for part in first["loc"])))
        raise InvalidError("agent.budget", f"{where}: {first['msg']}.") from None
    return budget if budget != Budget() else None
