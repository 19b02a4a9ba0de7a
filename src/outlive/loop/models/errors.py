"""What can go wrong with a model, told apart; and what to do about it, as a table. Pure.

    kind          error                code
    unavailable   RateLimitedError     model.rate_limited      wait as long as the provider says
    unavailable   OverloadedError      model.overloaded        the provider has no room
    unavailable   OutageError          model.outage            away, cut in the middle, silent for too long
    unavailable   GarbledError         model.garbled           what came back is not the provider's language
    invalid       BadRequestError      model.bad_request       the same question will never work
    not_found     UnknownModelError    model.not_found         the provider has no such model
    denied        RefusedError         model.refused           the provider will not answer that
    denied        UnauthorizedError    model.unauthorized      the key is missing or wrong (`model.no_key`: none is set)
    exhausted     NoCreditError        model.no_credit         nothing left to spend at the provider
    exhausted     ContextTooLongError  model.context_too_long  the question is longer than the model can read
    exhausted     AnswerTooLongError   model.answer_too_long   the answer is longer than we take

A refusal in the middle of an answer is no error: the answer ends with `stop_reason` "refusal".
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from outlive.base import DeniedError, ExhaustedError, InvalidError, NotFoundError, OutliveError, UnavailableError

MESSAGE_LIMIT = 500  # characters of the provider's own words that an error passes on
RETRY_AFTER_LIMIT_S = 3600.0


class RateLimitedError(UnavailableError):
    pass


class OverloadedError(UnavailableError):
    pass


class OutageError(UnavailableError):
    pass


class GarbledError(UnavailableError):
    pass


class BadRequestError(InvalidError):
    pass


class UnknownModelError(NotFoundError):
    pass


class RefusedError(DeniedError):
    pass


class UnauthorizedError(DeniedError):
    pass


class NoCreditError(ExhaustedError):
    pass


class ContextTooLongError(ExhaustedError):
    pass


class AnswerTooLongError(ExhaustedError):
    pass


class Retry(NamedTuple):
    """How often one step is tried in all, and how long between: doubling from `first_s`, never above `most_s`."""

    attempts: int
    first_s: float
    most_s: float


RETRIES: Mapping[str, Retry] = {
    "model.rate_limited": Retry(attempts=20, first_s=2.0, most_s=120.0),
    "model.overloaded": Retry(attempts=12, first_s=2.0, most_s=60.0),
    "model.outage": Retry(attempts=12, first_s=1.0, most_s=60.0),
    "model.garbled": Retry(attempts=4, first_s=1.0, most_s=10.0),
}
"""What is not here is never tried again."""


def retry_delay_s(error: OutliveError, attempt: int, spread: float = 0.0) -> float | None:
    """How long to wait after `attempt` (from 1) ended with `error`; None: give up.

    The provider's own word counts before the table's. `spread` (0 to 1) adds up to a quarter, so that many who were
    sent away together do not come back together.
    """
    retry = RETRIES.get(error.code)
    if retry is None or attempt >= retry.attempts:
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s * (1 + spread / 4)
    return float(min(retry.first_s * 2 ** min(attempt - 1, 30), retry.most_s)) * (1 + spread / 4)


class Report(NamedTuple):
    """What a provider said of an error. `status` is None where no HTTP status tells (in the middle of a stream)."""

    status: int | None
    type: str = ""
    code: str = ""
    message: str = ""
    retry_after_s: float | None = None


# Words for what a status would have said: errors in a stream come without one.
_STATUS_OF_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "exceed_context_size_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "tokens": 429,
    "requests": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

_CONTEXT_TOO_LONG = re.compile(
    r"prompt is too long"
    r"|exceeds? (the |your )?(available |model'?s? |maximum )?context"
    r"|context[ _]length[ _]exceeded"
    r"|maximum context length"
    r"|context window"
    r"|input tokens exceed"
    r"|reduce the length of the (messages|prompt|input)"
    r"|request_too_large|exceed_context_size",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"content[ _]?(filter|policy|management)|flagged as potentially violating|blocked by .{0,20}policy", re.IGNORECASE
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance is too low|spend_limit", re.IGNORECASE
)

KEY_VARIABLES: Mapping[str, str] = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


def _refused_or_bad(told: str) -> type[OutliveError]:
    return RefusedError if _REFUSED.search(told) else BadRequestError


def _class_of(status: int, told: str) -> type[OutliveError]:
    """The error that a status and the words beside it stand for."""
    match status:
        case 402:
            return NoCreditError
        case 429:
            return NoCreditError if _NO_CREDIT.search(told) else RateLimitedError
        case 503 | 529:
            return OverloadedError
        case 400 | 413 | 422 if _NO_CREDIT.search(told):
            return NoCreditError
        case 413:
            return ContextTooLongError
        case 400 | 422 if _CONTEXT_TOO_LONG.search(told):
            return ContextTooLongError
        case 401:
            return UnauthorizedError
        case 403:
            return RefusedError if _REFUSED.search(told) else UnauthorizedError
        case 404:
            return UnknownModelError
        case 408 | 409 | 425 | 499:
            return OutageError
        case _ if 400 <= status < 500:
            return _refused_or_bad(told)
        case _:
            return OutageError


_SAYS: Mapping[type[OutliveError], tuple[str, str]] = {
    RateLimitedError: ("model.rate_limited", "{provider} limits how often it may be asked; the step is tried again"),
    OverloadedError: ("model.overloaded", "{provider} is overloaded; the step is tried again"),
    OutageError: ("model.outage", "{provider} is away or broke off; the step is tried again"),
    BadRequestError: ("model.bad_request", "{provider} does not take this request"),
    UnknownModelError: ("model.not_found", "{provider} has no such model (or address: see its base URL)"),
    RefusedError: ("model.refused", "{provider} refuses to answer this"),
    UnauthorizedError: ("model.unauthorized", "{provider} does not accept the key: set {variable} to a valid one"),
    NoCreditError: ("model.no_credit", "{provider} has no credit left for this key"),
    ContextTooLongError: ("model.context_too_long", "The conversation is longer than the model of {provider} can read"),
}


def _status_of(report: Report, is_underway: bool) -> int:
    if report.status is not None:
        return report.status
    status = next((s for word in (report.code, report.type) if (s := _STATUS_OF_TYPE.get(word.lower()))), None)
    if status is None:
        told = f"{report.code} {report.message}"
        status = 400 if not is_underway and _CONTEXT_TOO_LONG.search(told) else 500
    # An answer that had begun was no bad request, whatever the error calls itself.
    return 500 if is_underway and status not in (429, 503, 529) else status


def model_error(provider: str, report: Report, *, is_underway: bool = False) -> OutliveError:
    """The error that a provider's report stands for. `is_underway`: part of the answer was there already."""
    told = f"{report.type} {report.code} {report.message}"
    kind = _class_of(_status_of(report, is_underway), told)
    code, sentence = _SAYS[kind]
    sentence = sentence.format(provider=provider, variable=KEY_VARIABLES.get(provider, "its key"))
    # What a provider says of a wrong key may hold a part of it.
    words = "" if kind is UnauthorizedError else " ".join(report.message.split())[:MESSAGE_LIMIT]
    status = f" ({report.status})" if report.status is not None and report.status >= 400 else ""
    return kind(
        code,
        f"{sentence}{status}{f': {words}' if words else ''}.".replace("..", "."),
        retry_after_s=report.retry_after_s,
        provider=provider,
        status=report.status,
    )


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """How long a provider asks us to wait: milliseconds, seconds or a date. `now` in seconds since 1970."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return _bounded(float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    try:
        return _bounded(parsedate_to_datetime(headers["retry-after"]).timestamp() - now)
    except (KeyError, ValueError, OverflowError):
        return None


def _bounded(seconds: float) -> float | None:
    # NaN compares with nothing: it is no answer.
    return max(0.0, min(seconds, RETRY_AFTER_LIMIT_S)) if seconds == seconds else None
