"""Races over the API, async and sync: the same prompt to several contestants, one of which is kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import anyio

from outlive.base import InvalidError, NotFoundError, is_id
from outlive.client.loop import Loop
from outlive.client.machines import VERB_S
from outlive.client.transport import Transport
from outlive.client.wire import garbled

LOOK_S = 0.5  # between two looks while its contestants are at work


@dataclass(frozen=True, slots=True)
class ContestantFacts:
    """One contestant as the server showed it. `outcome` is None while its turn goes on; `cost` (in dollars) where a
    price is not known."""

    number: int
    conversation: str
    machine: str | None
    model: str | None
    agent: str | None
    state: str
    outcome: str | None
    reason: str | None
    answer: str
    steps: int
    usage: Mapping[str, int]
    cost: float | None

    @property
    def tokens(self) -> int:
        return sum(self.usage.values())

    @property
    def is_over(self) -> bool:
        return self.state in ("ended", "failed", "chosen", "let_go")

    def to_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class RaceFacts:
    """A race as the server showed it when it was last asked."""

    id: str
    conversation: str
    at: int
    prompt: str
    state: str
    chosen: str | None
    contestants: tuple[ContestantFacts, ...]
    created_at: str | None

    def to_json(self) -> dict[str, Any]:
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**shown, "contestants": [each.to_json() for each in self.contestants]}


def race_of(raw: Mapping[str, Any]) -> RaceFacts:
    try:
        contestants = tuple(
            ContestantFacts(**{each.name: one[each.name] for each in fields(ContestantFacts)})
            for one in raw["contestants"]
        )
        known = {each.name: raw[each.name] for each in fields(RaceFacts) if each.name != "contestants"}
        return RaceFacts(contestants=contestants, **known)
    except (KeyError, TypeError):
        raise garbled() from None


class RaceShown:
    """Read-only facts; `refresh()` asks the server again."""

    def __init__(self, facts: RaceFacts) -> None:
        self._facts = facts

    @property
    def facts(self) -> RaceFacts:
        return self._facts

    @property
    def id(self) -> str:
        return self.facts.id

    @property
    def state(self) -> str:
        """starting, running, ended, letting_go or chosen."""
        return self.facts.state

    @property
    def contestants(self) -> tuple[ContestantFacts, ...]:
        return self.facts.contestants

    @property
    def chosen(self) -> str | None:
        """The conversation that was kept."""
        return self.facts.chosen

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"


class AsyncRace(RaceShown):
    def __init__(self, transport: Transport, facts: RaceFacts) -> None:
        super().__init__(facts)
        self._transport = transport

    async def refresh(self) -> "AsyncRace":
        """Ask the server again; returns itself."""
        self._facts = race_of(await self._transport.call("GET", f"/races/{self.id}"))
        return self

    async def wait(self, on_look: Callable[[RaceFacts], None] | None = None) -> "AsyncRace":
        """Until all contestants have ended, or one is chosen. `on_look` is shown how it stands, again and again."""
        while True:
            await self.refresh()
            if on_look is not None:
                on_look(self.facts)
            if self.state in ("ended", "letting_go", "chosen"):
                return self
            await anyio.sleep(LOOK_S)

    async def choose(self, contestant: str | int) -> "AsyncRace":
        """Keep one, by its conversation or its number. The others are let go: their turns are stopped, their machines
        deleted, their conversations archived. Returns when nothing of them is left."""
        found = [each for each in self.contestants if contestant in (each.conversation, each.number)]
        if not found:
            raise InvalidError("race.no_contestant", f"Race {self.id!r} has no contestant {contestant!r}.")
        body = {"conversation": found[0].conversation}
        answer = await self._transport.call(
            "POST", f"/races/{self.id}/choose", body, deadline_s=VERB_S, attempt_s=VERB_S
        )
        self._facts = race_of(answer)
        while self.state == "letting_go":  # something was away; the server goes on with it
            await anyio.sleep(LOOK_S)
            await self.refresh()
        return self


class AsyncRaces:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, id: str) -> AsyncRace:
        if not is_id(id, "race"):
            raise NotFoundError("race.unknown", f"There is no race {id!r}: ids look like `race_...`.")
        return AsyncRace(self._transport, race_of(await self._transport.call("GET", f"/races/{id}")))


class Race(RaceShown):
    """The same without `async`."""

    def __init__(self, loop: Loop, twin: AsyncRace) -> None:
        super().__init__(twin.facts)
        self._loop = loop
        self._twin = twin

    @property
    def facts(self) -> RaceFacts:
        return self._twin.facts

    def refresh(self) -> "Race":
        """Ask the server again; returns itself."""
        self._loop.run(self._twin.refresh)
        return self

    def wait(self, on_look: Callable[[RaceFacts], None] | None = None) -> "Race":
        """Until all contestants have ended, or one is chosen. `on_look` is shown how it stands, again and again."""
        self._loop.run(self._twin.wait, on_look)
        return self

    def choose(self, contestant: str | int) -> "Race":
        """Keep one, by its conversation or its number. The others are let go: their turns are stopped, their machines
        deleted, their conversations archived. Returns when nothing of them is left."""
        self._loop.run(self._twin.choose, contestant)
        return self


class Races:
    def __init__(self, loop: Loop, twin: AsyncRaces) -> None:
        self._loop = loop
        self._twin = twin

    def get(self, id: str) -> Race:
        return Race(self._loop, self._loop.run(self._twin.get, id))
