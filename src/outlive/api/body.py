"""The JSON of a request, read strictly: what cannot be kept as it was sent is refused, not bent.

Refused (422 `request.malformed`): bytes that are not UTF-8, lone surrogates, NaN and numbers that no other program
would read back the same (integers beyond 64 bits, floats beyond a double), nesting deeper than `DEPTH_LIMIT`, and
whatever is not an object. Of two equal keys the last one counts, as everywhere.

A small body can stand for a great many values, and each costs far more than its bytes. So they are counted before they
are made (422 `request.too_many_values`), and a large body is parsed in a thread.
"""

import json
import math
import re
from typing import Any, NoReturn, TypeVar

import anyio.to_thread
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from outlive.api.errors import invalid_from, unknown_fields
from outlive.base import InvalidError

M = TypeVar("M", bound=BaseModel)

DEPTH_LIMIT = 64
VALUES_LIMIT = 100_000
_THREAD_FROM = 1024 * 1024  # bytes
_JSON_TYPE = re.compile(r"application/(?:[\w.!#$&^-]+\+)?json\s*(?:;.*)?", re.ASCII | re.IGNORECASE)
# With its end left open: a string that is not closed is one match to the end, not a new try at every quote in it.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"?', re.DOTALL)
_INT_DIGITS = 20
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


def raw_body(request: Request) -> bytes:
    """The bytes that the gate has read; none of a method that takes none."""
    body: bytes = request.scope.get("outlive.body", b"")
    return body


async def parse_body(request: Request, model: type[M], *, may_be_empty: bool = False) -> M:
    """The body as `model` describes it."""
    raw = raw_body(request)
    if not raw and may_be_empty:
        return model()
    content_type = request.headers.get("content-type")
    if content_type is not None and not _JSON_TYPE.fullmatch(content_type):
        raise InvalidError("request.media_type", "The body must be JSON, with `Content-Type: application/json`.")
    if len(raw) >= _THREAD_FROM:
        return await anyio.to_thread.run_sync(_parse, raw, model)
    return _parse(raw, model)


def _parse(raw: bytes, model: type[M]) -> M:
    value = parse_object(raw)
    if not value.keys() <= model.model_fields.keys():
        raise unknown_fields((name for name in value if name not in model.model_fields), "body")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid_from(error, "body") from None


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that `raw` is."""
    may_be_many = _values_at_most(raw) > VALUES_LIMIT
    if may_be_many:
        _refuse_far_too_many(raw)
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_constant)
    except UnicodeDecodeError:
        raise malformed("it is not UTF-8") from None
    except RecursionError:
        raise malformed(f"it is nested deeper than {DEPTH_LIMIT}") from None
    except json.JSONDecodeError as error:
        raise malformed(f"{error.msg} at character {error.pos}") from None
    if not isinstance(value, dict):
        raise malformed("it is not an object")
    _check_depth(value)
    if may_be_many and _count(value) > VALUES_LIMIT:
        raise _too_many()
    # Only an escape can bring in a surrogate; only then is the search worth its time.
    if "\\u" in text:
        _check_surrogates(value)
    return value


def malformed(why: str) -> InvalidError:
    return InvalidError("request.malformed", f"The body cannot be taken: {why}.")


def _int(digits: str) -> int:
    if len(digits) <= _INT_DIGITS and _INT_MIN <= (value := int(digits)) <= _INT_MAX:
        return value
    raise malformed("it has an integer beyond 64 bits; send it as a string")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise malformed("it has a number beyond a double; send it as a string")
    return value


def _constant(name: str) -> NoReturn:
    raise malformed(f"{name} is not JSON")


def _values_at_most(raw: bytes) -> int:
    """More values than JSON of these bytes can have: each is the first of something or follows a comma."""
    return 1 + raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _refuse_far_too_many(raw: bytes) -> None:
    """Before anything is made of them. JSON with so many strings, commas and brackets has more values than we take."""
    bare, strings = _STRING.subn(b"", raw, count=2 * VALUES_LIMIT + 1)
    if strings > 2 * VALUES_LIMIT or _values_at_most(bare) > 2 * VALUES_LIMIT + 1:
        raise _too_many()


def _count(value: Any) -> int:
    count = 0
    level = [value]
    while level:
        count += len(level)
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return count


def _too_many() -> InvalidError:
    return InvalidError(
        "request.too_many_values",
        f"The body has more than {VALUES_LIMIT} values; send fewer, or put them in a text.",
        limit=VALUES_LIMIT,
    )


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise malformed(f"it is nested deeper than {DEPTH_LIMIT}")


def _check_surrogates(value: Any) -> None:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                if not _is_unicode(text):
                    raise malformed("it has half of a surrogate pair")
            case dict() as members:
                waiting.extend(members.keys())
                waiting.extend(members.values())
            case list() as items:
                waiting.extend(items)
            case _:
                pass


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
