"""The JSON of a request, read strictly: what cannot be kept as it was sent is refused, not bent.

Refused (422 `request.malformed`): bytes that are not UTF-8, lone surrogates, NaN and numbers that no other program
would read back the same (integers beyond 64 bits, floats beyond a double), nesting deeper than `DEPTH_LIMIT`, and
whatever is not an object. Of two equal keys the last one counts, as everywhere.
"""

import json
import math
import re
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from outlive.api.errors import invalid_from
from outlive.base import InvalidError

M = TypeVar("M", bound=BaseModel)

DEPTH_LIMIT = 64
_JSON_TYPE = re.compile(r"application/(?:[\w.!#$&^-]+\+)?json\s*(?:;.*)?", re.ASCII | re.IGNORECASE)
_INT_DIGITS = 20
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


def raw_body(request: Request) -> bytes:
    """The bytes that the gate has read."""
    body: bytes = request.scope["outlive.body"]
    return body


def parse_body(request: Request, model: type[M], *, may_be_empty: bool = False) -> M:
    """The body as `model` describes it."""
    raw = raw_body(request)
    if not raw and may_be_empty:
        return model()
    content_type = request.headers.get("content-type")
    if content_type is not None and not _JSON_TYPE.fullmatch(content_type):
        raise InvalidError("request.media_type", "The body must be JSON, with `Content-Type: application/json`.")
    try:
        return model.model_validate(parse_object(raw))
    except ValidationError as error:
        raise invalid_from(error, "body") from None


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that `raw` is."""
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
