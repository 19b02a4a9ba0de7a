"""Errors as HTTP: the only table from kinds to statuses, and the one shape every error is answered in.

    {"kind", "code", "title", "detail", "status", ...facts}        application/problem+json

A status is decided by the kind. A few codes of HTTP's own have a status of their own; they are listed here too.
"""

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from outlive.base import (
    BrokenError,
    DeadlineError,
    ExhaustedError,
    InvalidError,
    Kind,
    NotFoundError,
    OutliveError,
)
from outlive.governance import Answer

if TYPE_CHECKING:
    from fastapi.exceptions import RequestValidationError  # half a second that a node need not spend

PROBLEM_TYPE = "application/problem+json"

STATUS: dict[Kind, int] = {
    "invalid": 422,
    "unauthenticated": 401,
    "denied": 403,
    "not_found": 404,
    "conflict": 409,
    "fenced": 409,
    "exhausted": 429,
    "unavailable": 503,
    "deadline": 504,
    "broken": 500,
}
STATUS_OF_CODE: dict[str, int] = {
    "request.unreadable": 400,
    "request.method_not_allowed": 405,
    "request.too_slow": 408,
    "request.too_large": 413,
    "request.media_type": 415,
    "file.range": 416,
    "request.misdirected": 421,
    "websocket.required": 426,
    "request.headers_too_large": 431,
}
TITLES: dict[Kind, str] = {
    "invalid": "The request is not right",
    "unauthenticated": "Who is asking is not known",
    "denied": "This is not allowed",
    "not_found": "There is no such thing",
    "conflict": "The present state does not allow this",
    "fenced": "A newer attempt has taken over",
    "exhausted": "A limit was reached",
    "unavailable": "A part is away; try again",
    "deadline": "It took too long; try again",
    "broken": "Something is broken on our side",
}
ERRORS_SHOWN = 20
_NAME_SHOWN = 100  # characters of a field's name

_log = logging.getLogger(__name__)


class RequestInvalidError(InvalidError):
    """A request of the wrong shape: says what is wrong with which field."""

    def __init__(self, errors: list[dict[str, str]]) -> None:
        first = errors[0] if errors else {"at": "", "message": "wrong shape"}
        super().__init__("request.invalid", f"{first['at']}: {first['message']}" if first["at"] else first["message"])
        self.errors = errors


def status_of(error: OutliveError) -> int:
    return STATUS_OF_CODE.get(error.code, STATUS[error.kind])


def to_answer(error: OutliveError, extra: Mapping[str, Any] | None = None) -> Answer:
    """The answer that tells a client of `error`."""
    status = status_of(error)
    if error.kind == "broken":
        _log.error("%s: %s", error.code, error.message, exc_info=error)
    # What is our own fault is told in the log of the server, not to whoever asks.
    detail = error.message if error.kind != "broken" else "An internal error; the server's log says more."
    problem: dict[str, Any] = {
        "kind": error.kind,
        "code": error.code,
        "title": TITLES[error.kind],
        "detail": detail,
        "status": status,
    }
    facts = error.facts if error.kind != "broken" else {}
    problem = problem | {name: fact for name, fact in facts.items() if name not in problem} | dict(extra or {})
    if isinstance(error, RequestInvalidError):
        problem["errors"] = error.errors
    headers = [("content-type", PROBLEM_TYPE)]
    if error.retry_after_s is not None:
        headers.append(("retry-after", str(max(1, math.ceil(error.retry_after_s)))))
    elif status == 503:
        headers.append(("retry-after", "1"))
    if status == 426:
        headers.append(("upgrade", "websocket"))
    if error.kind == "unauthenticated":
        given = ', error="invalid_token"' if error.code == "token.unknown" else ""
        headers.append(("www-authenticate", f'Bearer realm="outlive"{given}'))
    return Answer(status, tuple(headers), json.dumps(problem).encode())


# For the server below the API, which meets what is no request yet.
UNREADABLE = to_answer(
    InvalidError("request.unreadable", "This is not HTTP that can be read: look at its method, headers and length.")
)
HEADERS_LIMIT = 64 * 1024
HEADERS_TOO_LARGE = to_answer(
    ExhaustedError(
        "request.headers_too_large",
        f"The address and the headers together may have {HEADERS_LIMIT // 1024} KiB; send less.",
        limit=HEADERS_LIMIT,
    )
)
HEADERS_TOO_SLOW = to_answer(DeadlineError("request.too_slow", "The headers came too slowly; send the request again."))


def to_response(answer: Answer, *extra: tuple[str, str]) -> Response:
    response = Response(answer.body, status_code=answer.status)
    for name, value in (*answer.headers, *extra):
        response.headers[name] = value
    return response


def invalid_from(error: "ValidationError | RequestValidationError", root: str = "") -> RequestInvalidError:
    """What pydantic found, without what was sent: that may be big, or secret."""
    found: Sequence[ErrorDetails] = (
        error.errors(include_url=False, include_context=False, include_input=False)
        if isinstance(error, ValidationError)
        else error.errors()
    )
    return RequestInvalidError([_told(each["loc"], each["msg"], each["type"], root) for each in found[:ERRORS_SHOWN]])


def unknown_fields(names: Iterable[str], root: str) -> RequestInvalidError:
    """What pydantic would say of fields that a model does not have; of the first few, however many there are."""
    return RequestInvalidError(
        [
            _told((name,), "Extra inputs are not permitted", "extra_forbidden", root)
            for name in islice(names, ERRORS_SHOWN)
        ]
    )


def _told(place: tuple[int | str, ...], message: str, kind: str, root: str) -> dict[str, str]:
    at = ".".join(str(part)[:_NAME_SHOWN] for part in (*([root] if root else []), *place))
    return {"at": at, "message": message, "type": kind}


# ── handlers, by what is raised ──


async def answer_outlive_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, OutliveError)
    return to_response(to_answer(error))


async def answer_validation_error(_: Request, error: Exception) -> Response:
    from fastapi.exceptions import RequestValidationError

    assert isinstance(error, RequestValidationError)
    return to_response(to_answer(invalid_from(error)))


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """What the router says by itself: no such route, or not this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        # The router names the methods of one route; the path may have several.
        routes: list[BaseRoute] = request.app.routes
        matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
        allowed = sorted({method for route in matching for method in getattr(route, "methods", None) or ()})
        refusal = InvalidError("request.method_not_allowed", f"This path takes {', '.join(allowed)}.")
        return to_response(to_answer(refusal), ("allow", ", ".join(allowed)))
    if error.status_code == 404:
        return to_response(to_answer(NotFoundError("route.not_found", "There is nothing at this path.")))
    return to_response(to_answer(InvalidError("request.malformed", "The request cannot be understood.")))


async def answer_anything(_: Request, error: Exception) -> Response:
    """A bug. Starlette raises it again behind our answer, so that the server logs it with its traceback."""
    return to_response(to_answer(_BugError(error)))


class _BugError(BrokenError):
    def __init__(self, error: Exception) -> None:
        super().__init__("api.failed", f"{type(error).__name__} in a handler")
        self.__cause__ = error
