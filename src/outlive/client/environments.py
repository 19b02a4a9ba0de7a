"""Environments over the API, async and sync. Nothing is decided here: the server checks a definition and builds it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import anyio

from outlive.base import DeadlineError, OutliveError
from outlive.client.loop import Loop
from outlive.client.transport import Translated, Transport, may_heal
from outlive.client.wire import garbled, items_of

BUILD_WITHIN_S = 6 * 3600.0
SILENCE_S = 30.0
_LOOK_EVERY_S = 0.5

OnLog = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """An environment as the server showed it when it was asked. `state`: building, ready or failed."""

    name: str
    digest: str
    state: str
    reason: str | None
    definition: Mapping[str, Any]
    checkpoint: str | None
    warm: int
    has_log: bool
    created_at: str | None
    changed_at: str | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def environment_of(raw: Mapping[str, Any]) -> EnvironmentFacts:
    try:
        return EnvironmentFacts(
            name=raw["name"],
            digest=raw["digest"],
            state=raw["state"],
            reason=raw.get("reason"),
            definition=raw["definition"],
            checkpoint=raw.get("checkpoint"),
            warm=raw.get("warm", 0),
            has_log=bool(raw.get("has_log")),
            created_at=raw.get("created_at"),
            changed_at=raw.get("changed_at"),
        )
    except KeyError:
        raise garbled() from None


Found = list[EnvironmentFacts]  # `list` is also a method here


class AsyncEnvironments:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def define(self, definition: Mapping[str, Any]) -> EnvironmentFacts:
        """From now on its name stands for this. Does not wait until it is built."""
        return environment_of(await self._transport.call("POST", "/environments", definition))

    async def build(
        self, definition: Mapping[str, Any], *, on_log: OnLog | None = None, within_s: float = BUILD_WITHIN_S
    ) -> EnvironmentFacts:
        """Define it and wait until it is built, or could not be: see `state`. `on_log` is told what the build says."""
        found = await self.define(definition)
        told = 0
        try:
            with anyio.fail_after(within_s):
                while True:
                    is_over = found.state != "building"
                    told = await self._tell(found, told, on_log)
                    if is_over:
                        return found
                    await anyio.sleep(_LOOK_EVERY_S)
                    found = await self.get(found.digest)
        except TimeoutError:
            raise DeadlineError(
                "environment.slow", f"It is not built after {within_s:g} s; that goes on, ask again later."
            ) from None

    async def get(self, name: str) -> EnvironmentFacts:
        """What this name, or digest, stands for."""
        return environment_of(await self._transport.call("GET", f"/environments/{quote(name, safe='')}"))

    async def list(self) -> Found:
        """By name."""
        found: Found = []
        params: dict[str, str | int | bool] = {}
        while True:
            answer = await self._transport.call("GET", "/environments", params=params)
            found.extend(environment_of(item) for item in items_of(answer))
            if not isinstance(following := answer.get("next"), str):
                return found
            params["cursor"] = following

    async def log(self, name: str, *, after: int = 0) -> bytes:
        """What its build has said so far, without the first `after` bytes."""
        response = await self._transport.open_stream(
            f"/environments/{quote(name, safe='')}/log", {"after": after}, {"Accept": "*/*"}, SILENCE_S
        )
        try:
            with Translated(self._transport.url):
                return await response.aread()
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def _tell(self, found: EnvironmentFacts, told: int, on_log: OnLog | None) -> int:
        """What is new; a server that is away is asked again in the next round."""
        if on_log is None or not found.has_log:
            return told
        try:
            new = await self.log(found.digest, after=told)
        except OutliveError as error:
            if not may_heal(error):
                raise
            return told
        if new:
            on_log(new)
        return told + len(new)


class Environments:
    """The same without `async`."""

    def __init__(self, loop: Loop, twin: AsyncEnvironments) -> None:
        self._loop = loop
        self._twin = twin

    def define(self, definition: Mapping[str, Any]) -> EnvironmentFacts:
        """From now on its name stands for this. Does not wait until it is built."""
        return self._loop.run(self._twin.define, definition)

    def build(
        self, definition: Mapping[str, Any], *, on_log: OnLog | None = None, within_s: float = BUILD_WITHIN_S
    ) -> EnvironmentFacts:
        """Define it and wait until it is built, or could not be: see `state`. `on_log` is told what the build says."""
        return self._loop.run(self._twin.build, definition, on_log=on_log, within_s=within_s)

    def get(self, name: str) -> EnvironmentFacts:
        """What this name, or digest, stands for."""
        return self._loop.run(self._twin.get, name)

    def list(self) -> Found:
        """By name."""
        return self._loop.run(self._twin.list)

    def log(self, name: str, *, after: int = 0) -> bytes:
        """What its build has said so far, without the first `after` bytes."""
        return self._loop.run(self._twin.log, name, after=after)
