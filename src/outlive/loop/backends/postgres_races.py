"""Races in PostgreSQL. Each call is one transaction, or one statement that only reads."""

from collections.abc import Sequence
from pathlib import Path

from outlive.base import RaceId
from outlive.loop.backends import race_rows
from outlive.loop.backends.race_rows import numbered, to_race, to_row
from outlive.loop.races.race import Decide, Race
from outlive.storage.migrate import read_migrations
from outlive.storage.postgres import Connection, PostgresDatabase

MIGRATIONS = read_migrations("races", Path(__file__).parent / "race_migrations" / "postgres")

_INSERT = numbered(race_rows.INSERT)
_ONE = numbered(race_rows.ONE)
_UPDATE = numbered(race_rows.UPDATE)
_UNSETTLED = numbered(race_rows.UNSETTLED)


class PostgresRaces:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def create(self, race: Race) -> Race:
        async def write(connection: Connection) -> Race:
            await connection.execute(_INSERT, *to_row(race))
            return to_race(await connection.fetchval(_ONE, race.id), race.id)

        return await self._database.write(write)

    async def get(self, race: RaceId) -> Race:
        return to_race(await self._database.run(lambda connection: connection.fetchval(_ONE, race)), race)

    async def change(self, race: RaceId, decide: Decide) -> Race:
        async def write(connection: Connection) -> Race:
            changed = decide(to_race(await connection.fetchval(f"{_ONE} FOR UPDATE", race), race))
            id, is_settled, document = to_row(changed)
            await connection.execute(_UPDATE, is_settled, document, id)
            return changed

        return await self._database.write(write)

    async def unsettled(self, *, limit: int) -> Sequence[Race]:
        rows = await self._database.run(lambda connection: connection.fetch(_UNSETTLED, limit))
        return [to_race(row[0], RaceId("")) for row in rows]
