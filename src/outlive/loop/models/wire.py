"""What the clients of all providers share on the wire: patience, a bound on bytes, and errors of the transport.

Only the clients import this, and they are imported when first used: it brings the HTTP library of the SDKs.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import anyio
import httpx2

from outlive.base import Clock, OutliveError
from outlive.loop.models.answering import garbled
from outlive.loop.models.client import Patience
from outlive.loop.models.errors import AnswerTooLongError, OutageError, Report, model_error, retry_after_s

BODY_LIMIT = 64 * 1024 * 1024  # bytes of one answer on the wire
CLOSE_S = 2.0


def timeouts(patience: Patience) -> httpx2.Timeout:
    return httpx2.Timeout(connect=patience.connect_s, read=patience.first_byte_s, write=60.0, pool=patience.connect_s)


class _Watched(httpx2.AsyncByteStream):
    """The body of an answer: ends when nothing comes for too long, or too much. Comments and pings count as life."""

    def __init__(self, body: httpx2.AsyncByteStream, request: httpx2.Request, silence_s: float) -> None:
        self._body = body
        self._request = request
        self._silence_s = silence_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._body)
        length = 0
        while True:
            try:
                with anyio.fail_after(self._silence_s):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise httpx2.ReadTimeout(f"silent for {self._silence_s:g} s", request=self._request) from error
            length += len(chunk)
            if length > BODY_LIMIT:
                raise AnswerTooLongError("model.answer_too_long", f"An answer has more than {BODY_LIMIT} bytes.")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


def watching(patience: Patience) -> Mapping[str, list[Any]]:
    """Event hooks for an HTTP client of the SDKs: every body is watched."""

    async def watch(response: httpx2.Response) -> None:
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Watched(response.stream, response.request, patience.silence_s)

    return {"response": [watch]}


def check_event_stream(provider: str, response: httpx2.Response) -> None:
    """That the answer is a stream of events, and no page of some proxy's."""
    content_type = response.headers.get("content-type", "")
    if not content_type.startswith("text/event-stream"):
        raise garbled(provider, f"an answer of type {content_type[:80]!r} and no stream of events")


def transport_error(provider: str, error: BaseException) -> OutliveError:
    """No connection, a cut one, or silence."""
    # The SDKs say no more than "Connection error."; the cause says which.
    told = next((text for e in (error.__cause__, error) if e is not None and (text := str(e))), type(error).__name__)
    return OutageError(
        "model.outage", f"{provider} is away or broke off; the step is tried again: {told[:200]}.", provider=provider
    )


def status_error(
    provider: str, clock: Clock, response: httpx2.Response, body: object, message: str, *, is_underway: bool
) -> OutliveError:
    """What an HTTP status, or an error event in a stream (status 200), stands for."""
    told = _inner(body)
    return model_error(
        provider,
        Report(
            status=response.status_code if response.status_code >= 400 else None,
            type=_word(told, "type"),
            code=_word(told, "code") or _word(told.get("details"), "error_code"),
            message=_word(told, "message") or message,
            retry_after_s=retry_after_s(response.headers, clock.now().timestamp()),
        ),
        is_underway=is_underway,
    )


def _inner(body: object) -> Mapping[str, Any]:
    match body:
        case {"error": dict(inner)}:
            return inner
        case dict():
            return body
        case _:
            return {}


def _word(told: object, name: str) -> str:
    word = told.get(name) if isinstance(told, dict) else None
    return "" if word is None else str(word)


async def close_quietly(closing: Any) -> None:
    """Close a stream also while being cancelled: the connection goes now, and not when somebody finds the time."""
    with anyio.move_on_after(CLOSE_S, shield=True):
        await closing.close()
