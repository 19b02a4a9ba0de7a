"""What every registry of users' tools promises: subclass `ToolOffersContract` and give it a `place` fixture."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outlive.base import ConflictError, InvalidError
from outlive.loop.backends import postgres_agents, sqlite_agents
from outlive.loop.backends.postgres_offers import PostgresOffers
from outlive.loop.backends.sqlite_offers import SqliteOffers
from outlive.loop.queues import TOOLS_PREFIX
from outlive.loop.tools.own.offers import Offered, ToolOffers
from outlive.loop.tools.own.wire import Offer, OfferedTool
from outlive.storage import migrate_postgres, migrate_sqlite, open_postgres, open_sqlite
from outlive.testing.conversations import StorePlace
from outlive.testing.machine_records import at_once

AT = "2026-01-02T00:00:00.000000Z"
SOON = "2026-01-02T00:05:00.000000Z"
LATE = "2026-01-02T00:20:00.000000Z"


@asynccontextmanager
async def offers_at(place: StorePlace) -> AsyncIterator[ToolOffers]:
    """The registry in the database at `place`. May be opened several times at once."""
    if place.kind == "sqlite":
        async with open_sqlite(Path(place.address), busy_timeout_s=20) as sqlite:
            await migrate_sqlite(sqlite, [sqlite_agents.MIGRATIONS])
            yield SqliteOffers(sqlite)
    else:
        async with open_postgres(place.address, pool_size=4) as postgres:
            await migrate_postgres(postgres, [postgres_agents.MIGRATIONS])
            yield PostgresOffers(postgres)


def a_tool(name: str, **given: Any) -> OfferedTool:
    known = {"description": "It is a tool. 🧑‍🚀", "parameters": {"type": "object", "properties": {}}}
    return OfferedTool.model_validate({"name": name, **known, **given})


def an_offer(queue: str, *tools: OfferedTool) -> Offer:
    return Offer(queue=queue_of(queue), tools=tools)


def queue_of(name: str) -> str:
    return f"{TOOLS_PREFIX}{name}"


class ToolOffersContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_what_is_offered_is_found_whole_by_others(self, place: StorePlace) -> None:
        one, two = a_tool("one", runs="parallel", is_idempotent=True, timeout_s=5.5), a_tool("two")
        async with offers_at(place) as offers, offers_at(place) as others:
            await offers.put(an_offer("q", two, one), AT)
            rows = [Offered(each, queue_of("q"), 1, AT, AT) for each in (one, two)]
            assert list(await others.list()) == rows
            assert dict(await others.find(["two", "nowhere"])) == {"two": rows[1]}
            assert dict(await others.find([])) == {}

    async def test_the_same_again_changes_nothing_but_when_it_was_heard_of(self, place: StorePlace) -> None:
        async with offers_at(place) as offers:
            await offers.put(an_offer("q", a_tool("one")), AT)
            await offers.put(an_offer("q", a_tool("one")), SOON)
            assert list(await offers.list()) == [Offered(a_tool("one"), queue_of("q"), 1, AT, SOON)]

    async def test_what_changed_is_a_new_version_and_what_is_not_offered_any_more_is_gone(
        self, place: StorePlace
    ) -> None:
        async with offers_at(place) as offers:
            await offers.put(an_offer("q", a_tool("one"), a_tool("two")), AT)
            await offers.put(an_offer("other", a_tool("three")), AT)
            changed = a_tool("two", description="Changed.")
            await offers.put(an_offer("q", changed), SOON)
            assert list(await offers.list()) == [
                Offered(a_tool("three"), queue_of("other"), 1, AT, AT),
                Offered(changed, queue_of("q"), 2, SOON, SOON),
            ]

    async def test_a_name_belongs_to_one_queue_until_its_worker_is_long_gone(self, place: StorePlace) -> None:
        async with offers_at(place) as offers:
            await offers.put(an_offer("q", a_tool("one"), a_tool("two")), AT)
            with pytest.raises(ConflictError, match="outlive-tools/q'") as caught:
                await offers.put(an_offer("other", a_tool("new"), a_tool("one")), SOON)
            assert caught.value.code == "tool.taken"
            assert [each.name for each in await offers.list()] == ["one", "two"]
            await offers.put(an_offer("other", a_tool("one")), LATE)
            assert [(each.name, each.queue, each.version) for each in await offers.list()] == [
                ("one", queue_of("other"), 2),
                ("two", queue_of("q"), 1),
            ]

    async def test_a_built_in_name_and_a_doubled_one_are_refused(self, place: StorePlace) -> None:
        async with offers_at(place) as offers:
            with pytest.raises(ConflictError, match="built-in"):
                await offers.put(an_offer("q", a_tool("shell")), AT)
            with pytest.raises(InvalidError, match="twice"):
                await offers.put(an_offer("q", a_tool("one"), a_tool("one")), AT)
            assert list(await offers.list()) == []

    async def test_of_two_that_offer_the_same_name_at_once_one_gets_it(self, place: StorePlace) -> None:
        async with offers_at(place) as offers, offers_at(place) as others:
            calls = [partial(each.put, an_offer(f"q{n}", a_tool("one")), AT) for n, each in enumerate((offers, others))]
            ended = await at_once(calls)
            refused = [each for each in ended if isinstance(each, ConflictError)]
            assert [error.code for error in refused] == ["tool.taken"]
            assert len(await offers.list()) == 1
