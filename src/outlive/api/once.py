"""Running a POST once per `Idempotency-Key`: between the route that acts and the keys that remember.

A route checks path, query and body first: what is refused there is not remembered, so a request that was mended may use
its key again. From the claim on everything that is final is remembered, refusals (404, 409, 422) included.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from outlive.api.body import raw_body
from outlive.api.errors import to_answer, to_response
from outlive.api.parts import parts_of, principal_of
from outlive.base import InvalidError, OperationId, OutliveError, new_operation_id
from outlive.governance import Answer, KeyScope

HEADER = "idempotency-key"
REPLAYED = ("idempotency-replayed", "true")
_SHAPE = re.compile(r"[ -~]{1,255}")

Act = Callable[[OperationId], Awaitable[Answer]]


def json_answer(status: int, content: Mapping[str, Any], *headers: tuple[str, str]) -> Answer:
    return Answer(status, (("content-type", "application/json"), *headers), json.dumps(content).encode())


async def run_once(request: Request, act: Act) -> Response:
    """The answer of `act`, or the one it gave before under the same key."""
    key = _key(request)
    safely = partial(_act_or_refuse, act)
    if key is None:
        return to_response(await safely(new_operation_id()))
    scope = KeyScope(principal_of(request).id, request.method, request.url.path, key)
    body = hashlib.sha256(raw_body(request)).digest()
    answer, is_replayed = await parts_of(request).idempotency.run(scope, body, safely)
    return to_response(answer, *([REPLAYED] if is_replayed else []))


async def _act_or_refuse(act: Act, operation: OperationId) -> Answer:
    try:
        return await act(operation)
    except OutliveError as error:
        return to_answer(error)


def _key(request: Request) -> str | None:
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    if len(given) > 1 or not _SHAPE.fullmatch(given[0]):
        raise InvalidError("idempotency.key_malformed", "An Idempotency-Key is 1 to 255 printable ASCII characters.")
    return given[0]
