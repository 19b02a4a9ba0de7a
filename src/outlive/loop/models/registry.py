"""`provider:name` to a client. A client is made when it is first asked for, and shared from then on."""

import importlib
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import anyio
import anyio.to_thread

from outlive.base import InvalidError
from outlive.loop.models.client import ModelClient, Patience
from outlive.loop.models.prices import prices

DEFAULT_MODELS: Mapping[str, tuple[str, str]] = {
    "ANTHROPIC_API_KEY": ("anthropic", "claude-sonnet-5-5"),
    "OPENAI_API_KEY": ("openai", "gpt-5.5"),
}
"""The model of an agent that names none, by the first of these variables that is set."""


class ModelName(NamedTuple):
    provider: str
    name: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.name}"


class Maker(Protocol):
    """Makes a client. Runs in a thread, since it imports what is dear."""

    def __call__(self) -> ModelClient: ...


def parse_model(text: str, providers: Mapping[str, object] | None = None) -> ModelName:
    """Read `provider:name`. The demo model needs no name."""
    provider, colon, name = text.partition(":")
    known = sorted(PROVIDERS if providers is None else providers)
    if not colon or provider not in known:
        raise InvalidError(
            "model.unknown_provider",
            f"{text[:100]!r} names no provider: write provider:name, with one of {', '.join(known)}. {_examples()}",
        )
    if not name.strip() and provider != "demo":
        raise InvalidError(
            "model.no_name", f"{text[:100]!r} names no model: write {provider}:name. {_examples(provider)}"
        )
    return ModelName(provider, name.strip())


def _examples(provider: str = "") -> str:
    """What there is, as far as it is known here: a provider takes any name, and says itself if it has no such model."""
    named = [model for model in prices() if model.startswith(f"{provider}:" if provider else "")]
    return f"Known by their price: {', '.join(named)}." if named else "Its own list says which there are."


def default_model(environ: Mapping[str, str]) -> str:
    """The model of an agent that names none: the provider whose key is there, or the built-in demo model."""
    for variable, (provider, name) in DEFAULT_MODELS.items():
        if environ.get(variable):
            return f"{provider}:{name}"
    return "demo:"


PROVIDERS: Mapping[str, tuple[str, str]] = {
    "anthropic": ("outlive.loop.models.anthropic", "AnthropicModels"),
    "demo": ("outlive.loop.models.demo", "DemoModel"),
    "openai": ("outlive.loop.models.openai", "OpenAIModels"),
}
"""The module and the class of each client: named, since importing them costs more than a process may have use for."""


def _made_by(provider: str, patience: Patience) -> Maker:
    module, name = PROVIDERS[provider]

    def make() -> ModelClient:
        made: Callable[..., ModelClient] = getattr(importlib.import_module(module), name)
        return made() if provider == "demo" else made(patience)

    return make


class ModelRegistry:
    """The clients of one process. `makers` are providers of one's own, or others in the place of those above."""

    def __init__(self, makers: Mapping[str, Maker] | None = None, patience: Patience | None = None) -> None:
        usual = {provider: _made_by(provider, patience or Patience()) for provider in PROVIDERS}
        self._makers = {**usual, **(makers or {})}
        self._clients: dict[str, ModelClient] = {}
        self._lock = anyio.Lock()

    @property
    def providers(self) -> tuple[str, ...]:
        return tuple(sorted(self._makers))

    async def find(self, model: str) -> tuple[ModelClient, ModelName]:
        """The client for `provider:name`, and the name to ask it for.

        Refused with `model.unknown_provider`, or `model.no_key`, which says what variable to set.
        """
        name = parse_model(model, self._makers)
        async with self._lock:
            client = self._clients.get(name.provider)
            if client is None:
                # Whoever is cancelled does not wait for an import; the next one finds it made.
                client = await anyio.to_thread.run_sync(self._makers[name.provider], abandon_on_cancel=True)
                self._clients[name.provider] = client
        return client, name

    async def aclose(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()
