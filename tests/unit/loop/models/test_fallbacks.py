"""When another model is asked, and which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import OutliveError
from outlive.loop.models import (
    RETRIES,
    AnswerTooLongError,
    BadRequestError,
    ContextTooLongError,
    GarbledError,
    OutageError,
    OverloadedError,
    RateLimitedError,
    UnauthorizedError,
    UnknownModelError,
)
from outlive.loop.models.errors import NoCreditError, RefusedError
from outlive.loop.models.fallbacks import ATTEMPTS, WAIT_LIMIT_S, next_model

FIRST, SECOND, THIRD = "anthropic:one", "openai:two", "openai:three"
OUTAGE = OutageError("model.outage", "Away.")


def after(error: OutliveError, attempts: int, *away: str, model: str = FIRST) -> str | None:
    return next_model(error, attempts, model=model, fallbacks=(SECOND, THIRD), away=away)


@pytest.mark.parametrize(
    "error",
    [
        OUTAGE,
        OverloadedError("model.overloaded", "Full."),
        RateLimitedError("model.rate_limited", "Too often."),
        GarbledError("model.garbled", "What?"),
    ],
)
def test_what_is_away_is_tried_a_few_times_and_then_another_is_asked(error: OutliveError) -> None:
    most = ATTEMPTS[error.code]
    assert [after(error, attempts) for attempts in range(1, most)] == [None] * (most - 1)
    assert after(error, most) == after(error, most + 7) == SECOND
    assert most < RETRIES[error.code].attempts, "who has fallbacks does not wait as long as who has none"


@pytest.mark.parametrize(
    "kind",
    [
        *(BadRequestError, UnauthorizedError, ContextTooLongError, AnswerTooLongError),
        *(UnknownModelError, NoCreditError, RefusedError),
    ],
)
def test_what_is_wrong_with_the_request_is_asked_of_nobody_else(kind: type[OutliveError]) -> None:
    codes = {"model.bad_request", "model.unauthorized", "model.no_key", "model.context_too_long", "model.refused"}
    assert all(after(kind(code, "No."), 100) is None for code in codes | {"model.not_found", "model.no_credit"})
    assert set(ATTEMPTS) == set(RETRIES), "what a retry might mend, and nothing else"


def test_a_provider_that_wants_to_be_left_alone_for_long_is_not_waited_for() -> None:
    def told(seconds: float) -> OutliveError:
        return RateLimitedError("model.rate_limited", "Too often.", retry_after_s=seconds)

    assert after(told(WAIT_LIMIT_S), 1) is None
    assert after(told(WAIT_LIMIT_S + 1), 1) == SECOND


def test_fallbacks_are_asked_in_their_order_each_once_and_the_last_one_stays() -> None:
    assert after(OUTAGE, 3, FIRST, model=SECOND) == THIRD
    assert after(OUTAGE, 100, FIRST, SECOND, model=THIRD) is None
    assert next_model(OUTAGE, 100, model=FIRST, fallbacks=(), away=()) is None


@given(
    st.lists(st.sampled_from([FIRST, SECOND, THIRD, "demo:"]), unique=True, max_size=4), st.sampled_from([FIRST, "x:"])
)
def test_whatever_the_fallbacks_a_turn_does_not_swing_between_models(fallbacks: list[str], model: str) -> None:
    asked, away = [model], list[str]()
    while (instead := next_model(OUTAGE, 3, model=asked[-1], fallbacks=fallbacks, away=away)) is not None:
        away.append(asked[-1])
        asked.append(instead)
    assert len(set(asked)) == len(asked) <= len(fallbacks) + 1
    assert set(asked) == {model, *fallbacks}
