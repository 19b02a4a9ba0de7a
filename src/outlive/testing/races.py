"""What every store of races promises: subclass `RaceRecordsContract` and give it a `place` fixture."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outlive.base import (
    CheckpointId,
    ConflictError,
    ConversationId,
    MachineId,
    NotFoundError,
    RaceId,
    derive,
    new_conversation_id,
    new_operation_id,
    new_principal_id,
)
from outlive.loop.backends import postgres_races, sqlite_races
from outlive.loop.races.race import Contestant, Race, RaceRecords, RaceSource, choose, let_go, started
from outlive.storage import migrate_postgres, migrate_sqlite, open_postgres, open_sqlite
from outlive.testing.conversations import AT, StorePlace
from outlive.testing.machine_records import at_once


@asynccontextmanager
async def races_at(place: StorePlace) -> AsyncIterator[RaceRecords]:
    """The races in the database at `place`. May be opened several times at once."""
    if place.kind == "sqlite":
        async with open_sqlite(Path(place.address), busy_timeout_s=20) as sqlite:
            await migrate_sqlite(sqlite, [sqlite_races.MIGRATIONS])
            yield sqlite_races.SqliteRaces(sqlite)
    else:
        async with open_postgres(place.address, pool_size=4) as postgres:
            await migrate_postgres(postgres, [postgres_races.MIGRATIONS])
            yield postgres_races.PostgresRaces(postgres)


def a_race(**fields: Any) -> Race:
    known = {
        "id": RaceId(derive("race", new_operation_id())),
        "conversation": new_conversation_id(),
        "at": 7,
        "prompt": "Fix it\x00 🧑‍🚀\n",
        "owner": new_principal_id(),
        "contestants": (Contestant(model="demo:"), Contestant(agent="coder"), Contestant()),
        "source": RaceSource(machine=MachineId("mach_1"), checkpoint=CheckpointId("ckpt_1")),
        "created_at": AT,
        "changed_at": AT,
    }
    return Race.model_validate(known | fields)


class RaceRecordsContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_a_race_is_found_whole_by_others(self, place: StorePlace) -> None:
        race = a_race()
        async with races_at(place) as records, races_at(place) as others:
            assert await records.create(race) == race
            assert await others.get(race.id) == race
            assert await others.create(a_race(id=race.id, prompt="other")) == race
            for call in (records.get, partial(records.change, decide=lambda found: found)):
                with pytest.raises(NotFoundError) as unknown:
                    await call(RaceId("race_x"))
                assert unknown.value.code == "race.unknown"

    async def test_what_is_left_to_do_is_listed_oldest_first(self, place: StorePlace) -> None:
        async with races_at(place) as records:
            first, second, third = [await records.create(a_race()) for _ in range(3)]
            await records.change(second.id, lambda race: started(race, {}, AT))
            assert [each.id for each in await records.unsettled(limit=10)] == [first.id, third.id]
            assert [each.id for each in await records.unsettled(limit=1)] == [first.id]
            chosen = await records.change(second.id, lambda race: choose(race, race.conversations[1], AT))
            assert [each.id for each in await records.unsettled(limit=10)] == [first.id, second.id, third.id]
            await records.change(chosen.id, lambda race: let_go(race, AT))
            assert second.id not in [each.id for each in await records.unsettled(limit=10)]

    async def test_of_two_who_choose_at_once_one_is_refused(self, place: StorePlace) -> None:
        async with races_at(place) as records, races_at(place) as others:
            race = await records.create(a_race(state="running"))

            async def pick(by: RaceRecords, conversation: ConversationId) -> Race:
                return await by.change(race.id, lambda found: choose(found, conversation, AT))

            calls = [partial(pick, by, race.conversations[place]) for place, by in enumerate((records, others))]
            made = await at_once(calls)
            [refused] = [each for each in made if not isinstance(each, Race)]
            assert isinstance(refused, ConflictError)
            assert refused.code == "race.already_chosen"
            [kept] = [each for each in made if isinstance(each, Race)]
            assert (await records.get(race.id)).chosen == kept.chosen
