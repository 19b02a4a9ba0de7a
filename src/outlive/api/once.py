"""Running a POST once per `Idempotency-Key`: between the route that acts and the keys that remember.

A route checks path, query and body first: what is refused there is not remembered, so a request that was mended may use
its key again. But a key that already stands for another body is told so, even if this body would be refused anyway.
From the claim on everything that is final is remembered, refusals (404, 409, 422) included.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from outlive.api.body import M, parse_body, raw_body
from outlive.api.errors import to_answer, to_response
from outlive.api.parts import parts_of, principal_of
from outlive.base import InvalidError, OperationId, OutliveError, new_operation_id
from outlive.governance import Answer, KeyScope

HEADER = "idempotency-key"
REPLAYED = ("idempotency-replayed", "true")
_SHAPE = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")

Act = Callable[[OperationId], Awaitable[Answer]]


def json_answer(status: int, content: Mapping[str, Any], *headers: tuple[str, str]) -> Answer:
    return Answer(status, (("content-type", "application/json"), *headers), json.dumps(content).encode())


async def read_body(request: Request, model: type[M], *, may_be_empty: bool = False) -> M:
    """The body as `model` describes it."""
    try:
        return await parse_body(request, model, may_be_empty=may_be_empty)
    except InvalidError:
        if (key := _key(request)) is not None:
            await parts_of(request).idempotency.refuse_other(_scope(request, key), _hash(request))
        raise


async def run_once(request: Request, act: Act) -> Response:
    """The answer of `act`, or the one it gave before under the same key."""
    key = _key(request)
    safely = partial(_act_or_refuse, act)
    if key is None:
        return to_response(await safely(new_operation_id()))
    answer, is_replayed = await parts_of(request).idempotency.run(_scope(request, key), _hash(request), safely)
    return to_response(answer, *([REPLAYED] if is_replayed else []))


async def _act_or_refuse(act: Act, operation: OperationId) -> Answer:
    try:
        return await act(operation)
    except OutliveError as error:
        return to_answer(error)


def _scope(request: Request, key: str) -> KeyScope:
    return KeyScope(principal_of(request).id, request.method, request.url.path, key)


def _hash(request: Request) -> bytes:
    return hashlib.sha256(raw_body(request)).digest()


def _key(request: Request) -> str | None:
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    key = given[0].strip(" ")  # what HTTP says of the ends of a header, whoever reads it
    if len(given) > 1 or not _SHAPE.fullmatch(key):
        raise InvalidError("idempotency.key_malformed", "An Idempotency-Key is 1 to 255 printable ASCII characters.")
    return key
