"""Anthropic, through its SDK. The SDK's own environment variables alone decide on key, address and proxy.

Importing this costs a second: `registry` does it in a thread, when the provider is first asked for.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient

from outlive.base import Clock, OutliveError, SystemClock
from outlive.loop.models.answering import garbled
from outlive.loop.models.anthropic_wire import PROVIDER, AnthropicFold, request_body
from outlive.loop.models.client import Patience
from outlive.loop.models.errors import UnauthorizedError
from outlive.loop.models.messages import ModelRequest, Piece
from outlive.loop.models.wire import (
    check_event_stream,
    close_quietly,
    status_error,
    timeouts,
    transport_error,
    watching,
)


class AnthropicModels:
    """A ModelClient. Retries of the SDK are off: the loop retries, as attempts that everybody can see."""

    def __init__(self, patience: Patience | None = None, clock: Clock | None = None) -> None:
        patience = patience or Patience()
        self._clock = clock or SystemClock()
        http_client = DefaultAsyncHttpxClient(timeout=timeouts(patience), event_hooks=watching(patience))
        try:
            self._client = AsyncAnthropic(max_retries=0, timeout=timeouts(patience), http_client=http_client)
        except anthropic.AnthropicError as error:  # a profile of the SDK's that cannot be read
            raise _no_key() from error
        if (self._client.api_key, self._client.auth_token, self._client.credentials) == (None, None, None):
            raise _no_key()
        self._messages = self._client.messages  # the SDK imports it only now

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        fold = AnthropicFold()
        stream: AsyncStream[Any] | None = None
        headers = {"x-outlive-step": request.step} if request.step else None
        try:
            stream = await self._messages.create(**request_body(request), stream=True, extra_headers=headers)
            check_event_stream(PROVIDER, stream.response)
            async for event in stream:
                for piece in fold.take(_plain(event)):
                    yield piece
            yield fold.answer()
        except (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError, ValueError) as error:
            raise self._told(error, fold.is_underway) from error
        finally:
            if stream is not None:
                await close_quietly(stream)

    def _told(self, error: Exception, is_underway: bool) -> OutliveError:
        match error:
            case anthropic.APIStatusError():
                return status_error(
                    PROVIDER, self._clock, error.response, error.body, error.message, is_underway=is_underway
                )
            case anthropic.APIConnectionError() | httpx2.HTTPError() | httpx2.StreamError():
                return transport_error(PROVIDER, error)
            case anthropic.CredentialsError():
                return _no_key()
            case _:  # no JSON, no UTF-8, no shape that the SDK knows
                return garbled(PROVIDER, type(error).__name__)

    async def aclose(self) -> None:
        await self._client.close()


def _no_key() -> UnauthorizedError:
    return UnauthorizedError(
        "model.no_key",
        "Models of anthropic need a key: set ANTHROPIC_API_KEY where workers start: before `outlive up`; if that "
        "runs, `outlive down` first.",
        provider=PROVIDER,
    )


def _plain(event: object) -> Mapping[str, Any]:
    """The event as it stood on the wire: the SDK builds its types without checking them."""
    if isinstance(event, anthropic.BaseModel):
        return event.to_dict(warnings=False)
    raise garbled(PROVIDER, "an event that is no object")
