"""What a provider's error stands for, and when it is worth another attempt."""

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
    RateLimitedError,
    UnauthorizedError,
    retry_delay_s,
)
from outlive.loop.models.errors import MESSAGE_LIMIT, RETRY_AFTER_LIMIT_S, Report, model_error, retry_after_s


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "1e9"}, RETRY_AFTER_LIMIT_S),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, now=100.0) == seconds


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text()))
def test_no_header_makes_us_wait_longer_than_the_bound(headers: dict[str, str]) -> None:
    seconds = retry_after_s(headers, now=0.0)
    assert seconds is None or 0 <= seconds <= RETRY_AFTER_LIMIT_S


def test_what_will_never_work_is_never_tried_again() -> None:
    for kind in (BadRequestError, UnauthorizedError, ContextTooLongError, AnswerTooLongError):
        assert retry_delay_s(kind("model.x", "No."), 1) is None


def test_delays_grow_to_a_bound_and_attempts_end() -> None:
    error = OutageError("model.outage", "Away.")
    retry = RETRIES["model.outage"]
    delays = [retry_delay_s(error, attempt) for attempt in range(1, retry.attempts + 1)]
    assert delays[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(delay for delay in delays if delay is not None) == retry.most_s
    assert delays.index(None) == retry.attempts - 1


def test_the_providers_word_counts_and_a_spread_keeps_many_apart() -> None:
    error = RateLimitedError("model.rate_limited", "Slow down.", retry_after_s=10.0)
    assert retry_delay_s(error, 1) == 10.0
    assert retry_delay_s(error, 1, spread=1.0) == 12.5


def test_everything_in_the_table_is_of_a_kind_that_may_be_tried_again() -> None:
    for status in range(400, 600):
        error = model_error("anthropic", Report(status))
        assert (error.code in RETRIES) == error.is_retryable, error.code
    assert GarbledError("model.garbled", "?").is_retryable
    assert set(RETRIES) == {"model.rate_limited", "model.overloaded", "model.outage", "model.garbled"}


def test_an_answer_that_had_begun_was_no_bad_request() -> None:
    report = Report(None, "invalid_request_error", message="maximum context length")
    assert model_error("openai", report, is_underway=True).code == "model.outage"
    assert model_error("openai", report, is_underway=False).code == "model.context_too_long"


@given(st.integers(400, 599) | st.none(), st.text(), st.text(), st.text(), st.booleans())
def test_any_report_is_one_of_our_errors_and_short(
    status: int | None, type: str, code: str, message: str, is_underway: bool
) -> None:
    error = model_error("openai", Report(status, type, code, message * 100), is_underway=is_underway)
    assert isinstance(error, OutliveError)
    assert error.code.startswith("model.")
    assert len(error.message) < MESSAGE_LIMIT + 200
