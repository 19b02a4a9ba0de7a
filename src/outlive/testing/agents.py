"""What every store of agents promises: subclass `AgentRecordsContract` and give it a `place` fixture."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outlive.loop.agents import Agent, AgentDefinition, AgentRecords
from outlive.loop.backends import postgres_agents, sqlite_agents
from outlive.storage import migrate_postgres, migrate_sqlite, open_postgres, open_sqlite
from outlive.testing.conversations import AT, StorePlace
from outlive.testing.machine_records import at_once


@asynccontextmanager
async def agents_at(place: StorePlace) -> AsyncIterator[AgentRecords]:
    """The agents in the database at `place`. May be opened several times at once."""
    if place.kind == "sqlite":
        async with open_sqlite(Path(place.address), busy_timeout_s=20) as sqlite:
            await migrate_sqlite(sqlite, [sqlite_agents.MIGRATIONS])
            yield sqlite_agents.SqliteAgents(sqlite)
    else:
        async with open_postgres(place.address, pool_size=4) as postgres:
            await migrate_postgres(postgres, [postgres_agents.MIGRATIONS])
            yield postgres_agents.PostgresAgents(postgres)


def an_agent(name: str = "reviewer", **fields: Any) -> AgentDefinition:
    known = {"name": name, "model": "demo:", "instructions": "Review.", "tools": ("shell", "read_file")}
    return AgentDefinition.model_validate(known | fields)


async def applied(records: AgentRecords, definition: AgentDefinition, by: str = "prin_test") -> Agent:
    return await records.put(definition, is_builtin=False, by=by, at=AT)


async def built_in(records: AgentRecords, definition: AgentDefinition) -> Agent:
    return await records.put(definition, is_builtin=True, by="outlive", at=AT)


class AgentRecordsContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_an_agent_is_found_whole_by_others(self, place: StorePlace) -> None:
        definition = an_agent(
            instructions="a\x00b 🧑‍🚀\n",
            model=None,
            tools=(),
            environment="web",
            budget={"tokens": 10, "usd": 0.5},
            policy={"deny": [{"tool": "shell"}]},
        )
        async with agents_at(place) as records, agents_at(place) as others:
            made = await applied(records, definition)
            assert made == Agent(definition, 1, is_builtin=False, created_by="prin_test", created_at=AT)
            assert await others.newest("reviewer") == await others.get("reviewer", 1) == made
            assert list(await others.list()) == [made]

    async def test_the_same_definition_makes_no_new_version(self, place: StorePlace) -> None:
        async with agents_at(place) as records:
            first = await applied(records, an_agent(budget={"a": 1, "b": 2}))
            again = await applied(records, an_agent(budget={"b": 2, "a": 1}), by="prin_other")
            assert again == first

    async def test_a_change_is_the_next_version_and_the_one_before_stays(self, place: StorePlace) -> None:
        async with agents_at(place) as records:
            first = await applied(records, an_agent())
            second = await applied(records, an_agent(instructions="Review well."))
            back = await applied(records, an_agent())
            assert [each.version for each in (first, second, back)] == [1, 2, 3]
            assert await records.newest("reviewer") == back
            assert [await records.get("reviewer", n) for n in (1, 2, 3)] == [first, second, back]

    async def test_versions_are_dense_whoever_applies_at_once(self, place: StorePlace) -> None:
        async with agents_at(place) as records, agents_at(place) as others:
            calls = [
                partial(applied, each, an_agent(instructions=f"{number} {place}"))
                for number in range(6)
                for place, each in enumerate((records, others))
            ]
            made = await at_once(calls)
            assert sorted(each.version for each in made if isinstance(each, Agent)) == list(range(1, 13))

    async def test_the_same_applied_at_once_is_one_version(self, place: StorePlace) -> None:
        async with agents_at(place) as records, agents_at(place) as others:
            made = await at_once([partial(applied, each, an_agent()) for each in (records, others) * 4])
            assert made == [made[0]] * 8

    async def test_what_is_built_in_never_takes_the_place_of_what_was_applied(self, place: StorePlace) -> None:
        async with agents_at(place) as records:
            own = await built_in(records, an_agent())
            assert await built_in(records, an_agent()) == own
            changed = await built_in(records, an_agent(instructions="Of the next release."))
            assert (changed.version, changed.is_builtin) == (2, True)
            users = await applied(records, changed.definition)
            assert (users.version, users.is_builtin) == (3, False)
            assert await built_in(records, an_agent(instructions="Of a later release.")) == users

    async def test_the_newest_of_each_name_are_listed_by_name(self, place: StorePlace) -> None:
        async with agents_at(place) as records:
            await applied(records, an_agent("b"))
            newest = await applied(records, an_agent("b", model="demo:x"))
            a, c = await applied(records, an_agent("a")), await applied(records, an_agent("c-1"))
            assert list(await records.list()) == [a, newest, c]

    async def test_what_is_not_there_is_none(self, place: StorePlace) -> None:
        async with agents_at(place) as records:
            await applied(records, an_agent())
            assert await records.newest("other") is None
            assert await records.get("reviewer", 2) is None
            assert await records.get("other", 1) is None
