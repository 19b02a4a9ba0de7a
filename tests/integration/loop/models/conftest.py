"""A pretend provider in this process, and the clients of both providers led to it by their SDKs' own variables."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing

import pytest

from outlive.loop.models import Answer, Message, ModelClient, ModelRequest, Piece, UserMessage
from outlive.loop.models.anthropic import AnthropicModels
from outlive.loop.models.client import Patience
from outlive.loop.models.openai import OpenAIModels
from outlive.testing.pretend_provider import PretendProvider, pretend_provider

CLIENTS: dict[str, Callable[[Patience | None], ModelClient]] = {"anthropic": AnthropicModels, "openai": OpenAIModels}


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PretendProvider]:
    async with pretend_provider() as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture(params=sorted(CLIENTS))
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def connect(provider: PretendProvider, api: str) -> AsyncIterator[Callable[..., ModelClient]]:
    """Make a client of the provider whose turn it is, with some patience."""
    async with AsyncExitStack() as closing:

        def make(patience: Patience | None = None, of: str = api) -> ModelClient:
            client = CLIENTS[of](patience)
            closing.push_async_callback(client.aclose)
            return client

        yield make


@pytest.fixture
def model(connect: Callable[..., ModelClient]) -> ModelClient:
    return connect()


def question(*messages: Message | str, **more: object) -> ModelRequest:
    said = tuple(UserMessage(message) if isinstance(message, str) else message for message in messages)
    request = {"model": "pretend", "messages": said, "step": "step_1", **more}
    return ModelRequest(**request)  # type: ignore[arg-type]


async def pieces_of(model: ModelClient, request: ModelRequest) -> list[Piece]:
    async with aclosing(model.stream(request)) as stream:
        return [piece async for piece in stream]


async def answer_of(model: ModelClient, request: ModelRequest) -> Answer:
    last = (await pieces_of(model, request))[-1]
    assert isinstance(last, Answer)
    return last
