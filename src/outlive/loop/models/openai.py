"""OpenAI and all that speak its Chat Completions, through its SDK. The SDK's own environment variables alone decide on
key, address and proxy.

Importing this costs a second: `registry` does it in a thread, when the provider is first asked for.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream, DefaultAsyncHttpxClient

from outlive.base import Clock, OutliveError, SystemClock
from outlive.loop.models.answering import garbled
from outlive.loop.models.client import Patience
from outlive.loop.models.errors import Report, UnauthorizedError, model_error
from outlive.loop.models.messages import ModelRequest, Piece
from outlive.loop.models.openai_wire import PROVIDER, OpenAIFold, request_body
from outlive.loop.models.wire import (
    check_event_stream,
    close_quietly,
    status_error,
    timeouts,
    transport_error,
    watching,
)


class OpenAIModels:
    """A ModelClient. Retries of the SDK are off: the loop retries, as attempts that everybody can see."""

    def __init__(self, patience: Patience | None = None, clock: Clock | None = None) -> None:
        patience = patience or Patience()
        self._clock = clock or SystemClock()
        http_client = DefaultAsyncHttpxClient(timeout=timeouts(patience), event_hooks=watching(patience))
        try:
            self._client = AsyncOpenAI(max_retries=0, timeout=timeouts(patience), http_client=http_client)
        except openai.OpenAIError as error:
            raise UnauthorizedError(
                "model.no_key",
                "Models of openai need a key: set OPENAI_API_KEY (any word, for a server that asks for none) where "
                "workers start: before `outlive up`; if that runs, `outlive down` first.",
                provider=PROVIDER,
            ) from error
        self._completions = self._client.chat.completions  # the SDK imports it only now

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        fold = OpenAIFold()
        stream: AsyncStream[Any] | None = None
        headers = {"x-outlive-step": request.step} if request.step else None
        body = request_body(request, self._client.base_url.host)
        try:
            stream = await self._completions.create(**body, stream=True, extra_headers=headers)
            check_event_stream(PROVIDER, stream.response)
            async for chunk in stream:
                for piece in fold.take(_plain(chunk)):
                    yield piece
            yield fold.answer()
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError, ValueError) as error:
            raise self._told(error, fold.is_underway) from error
        finally:
            if stream is not None:
                await close_quietly(stream)

    def _told(self, error: Exception, is_underway: bool) -> OutliveError:
        match error:
            case openai.APIStatusError():
                return status_error(
                    PROVIDER, self._clock, error.response, error.body, error.message, is_underway=is_underway
                )
            case openai.APIConnectionError() | httpx2.HTTPError() | httpx2.StreamError():
                return transport_error(PROVIDER, error)
            case openai.APIError() if not isinstance(
                error, openai.APIResponseValidationError
            ):  # an event of the stream
                report = Report(None, error.type or "", error.code or "", error.message)
                return model_error(PROVIDER, report, is_underway=is_underway)
            case _:  # no JSON, no UTF-8, no shape that the SDK knows
                return garbled(PROVIDER, type(error).__name__)

    async def aclose(self) -> None:
        await self._client.close()


def _plain(chunk: object) -> Mapping[str, Any]:
    """The chunk as it stood on the wire: the SDK builds its types without checking them."""
    if isinstance(chunk, openai.BaseModel):
        return chunk.to_dict(warnings=False)
    raise garbled(PROVIDER, "a chunk that is no object")
