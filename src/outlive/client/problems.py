"""Answers that say no, as the errors of `outlive.base`: the same kind and code that the server raised.

An answer that is no problem document (a proxy's page, a cut body) still becomes an error, by its status.
"""

import json
from typing import Any

from outlive.base import (
    KINDS,
    BrokenError,
    ConflictError,
    DeadlineError,
    DeniedError,
    ExhaustedError,
    FencedError,
    InvalidError,
    Kind,
    NotFoundError,
    OutliveError,
    UnauthenticatedError,
    UnavailableError,
)

_CLASSES: dict[Kind, type[OutliveError]] = {
    cls.kind: cls
    for cls in (
        InvalidError,
        UnauthenticatedError,
        DeniedError,
        NotFoundError,
        ConflictError,
        FencedError,
        ExhaustedError,
        UnavailableError,
        DeadlineError,
        BrokenError,
    )
}
assert _CLASSES.keys() == set(KINDS)

_BY_STATUS: dict[int, Kind] = {
    401: "unauthenticated",
    403: "denied",
    404: "not_found",
    408: "deadline",
    409: "conflict",
    410: "not_found",
    413: "exhausted",
    429: "exhausted",
    502: "unavailable",
    503: "unavailable",
    504: "deadline",
}
_TOLD = frozenset(
    # Said in other ways, or names that the constructor has for something else.
    {"type", "title", "status", "detail", "instance", "kind", "code", "self", "message", "retry_after_s"}
)
_RETRY_AFTER_MAX_S = 3600.0


def error_of(status: int, body: bytes, retry_after: str | None) -> OutliveError:
    """The error that an answer with a status of 400 and above stands for."""
    wait_s = _seconds(retry_after)
    problem = _problem(body)
    kind, code = problem.get("kind"), problem.get("code")
    if isinstance(kind, str) and kind in _CLASSES and isinstance(code, str):
        message = problem.get("detail") or problem.get("title") or code
        given = {name: _fact(value) for name, value in problem.items() if name not in _TOLD}
        facts = {name: value for name, value in given.items() if isinstance(value, str | int | float | tuple | None)}
        return _CLASSES[kind](code, str(message), retry_after_s=wait_s, **facts)
    kind_by_status = _BY_STATUS.get(status, "invalid" if status < 500 else "broken")
    return _CLASSES[kind_by_status](
        f"http.{status}", f"The server answered {status} without saying why.", retry_after_s=wait_s, status=status
    )


def _problem(body: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _fact(value: object) -> object:
    """A list of words is a fact too."""
    is_words = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return tuple(value) if is_words and isinstance(value, list) else value


def _seconds(retry_after: str | None) -> float | None:
    # The other form of the header, a date, is of no use between two clocks: we then wait as long as we would anyway.
    if retry_after is None or not (retry_after.isascii() and retry_after.isdigit()) or len(retry_after) > 9:
        return None
    return min(float(retry_after), _RETRY_AFTER_MAX_S)
