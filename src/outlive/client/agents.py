"""Agents over the API, async and sync. Nothing is decided here: the server checks a definition and numbers it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from outlive.client.loop import Loop
from outlive.client.transport import Transport
from outlive.client.wire import garbled, items_of

LIST_PAGE = 100


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """One version of an agent, as the server showed it."""

    name: str
    version: int
    model: str
    instructions: str
    tools: tuple[str, ...]
    environment: str | None
    mcp: tuple[Mapping[str, Any], ...]
    budget: Mapping[str, Any] | None
    policy: Mapping[str, Any] | None
    fallbacks: tuple[str, ...]
    builtin: bool
    created_by: str | None
    created_at: str | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def agent_of(raw: Mapping[str, Any]) -> AgentFacts:
    try:
        return AgentFacts(
            name=raw["name"],
            version=raw["version"],
            model=raw["model"],
            instructions=raw["instructions"],
            tools=tuple(raw["tools"]),
            environment=raw.get("environment"),
            mcp=tuple(raw.get("mcp") or ()),
            budget=raw.get("budget"),
            policy=raw.get("policy"),
            fallbacks=tuple(raw.get("fallbacks") or ()),
            builtin=bool(raw.get("builtin")),
            created_by=raw.get("created_by"),
            created_at=raw.get("created_at"),
        )
    except (KeyError, TypeError):
        raise garbled() from None


Found = list[AgentFacts]  # `list` is also a method here


class AsyncAgents:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def apply(self, definition: Mapping[str, Any]) -> AgentFacts:
        """From now on its name stands for this, as a new version; the same again makes none."""
        return agent_of(await self._transport.call("POST", "/agents", definition))

    async def get(self, name: str, version: int | None = None) -> AgentFacts:
        """The newest version, or the one that is asked for."""
        path = f"/agents/{quote(name, safe='')}" + (f"/versions/{version}" if version is not None else "")
        return agent_of(await self._transport.call("GET", path))

    async def list(self) -> Found:
        """The newest version of each, by name."""
        found: Found = []
        cursor: dict[str, str] = {}
        while True:
            answer = await self._transport.call("GET", "/agents", params={"limit": LIST_PAGE, **cursor})
            found.extend(agent_of(item) for item in items_of(answer))
            if not isinstance(following := answer.get("next"), str):
                return found
            cursor = {"cursor": following}


class Agents:
    """The same without `async`."""

    def __init__(self, loop: Loop, twin: AsyncAgents) -> None:
        self._loop = loop
        self._twin = twin

    def apply(self, definition: Mapping[str, Any]) -> AgentFacts:
        """From now on its name stands for this, as a new version; the same again makes none."""
        return self._loop.run(self._twin.apply, definition)

    def get(self, name: str, version: int | None = None) -> AgentFacts:
        """The newest version, or the one that is asked for."""
        return self._loop.run(self._twin.get, name, version)

    def list(self) -> Found:
        """The newest version of each, by name."""
        return self._loop.run(self._twin.list)
