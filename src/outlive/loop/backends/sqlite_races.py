"""Races in SQLite. Each call is one transaction, or one statement that only reads."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from outlive.base import RaceId
from outlive.loop.backends import race_rows
from outlive.loop.backends.race_rows import to_race, to_row
from outlive.loop.races.race import Decide, Race
from outlive.storage.migrate import read_migrations
from outlive.storage.sqlite import SqliteDatabase

MIGRATIONS = read_migrations("races", Path(__file__).parent / "race_migrations" / "sqlite")


class SqliteRaces:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def create(self, race: Race) -> Race:
        def write(connection: sqlite3.Connection) -> Race:
            connection.execute(race_rows.INSERT, to_row(race))
            return _one(connection, race.id)

        return await self._database.write(write)

    async def get(self, race: RaceId) -> Race:
        return await self._database.read(lambda connection: _one(connection, race))

    async def change(self, race: RaceId, decide: Decide) -> Race:
        def write(connection: sqlite3.Connection) -> Race:
            changed = decide(_one(connection, race))
            id, is_settled, document = to_row(changed)
            connection.execute(race_rows.UPDATE, (is_settled, document, id))
            return changed

        return await self._database.write(write)

    async def unsettled(self, *, limit: int) -> Sequence[Race]:
        rows = await self._database.read(
            lambda connection: connection.execute(race_rows.UNSETTLED, (limit,)).fetchall()
        )
        return [to_race(row[0], RaceId("")) for row in rows]


def _one(connection: sqlite3.Connection, race: RaceId) -> Race:
    row = connection.execute(race_rows.ONE, (race,)).fetchone()
    return to_race(None if row is None else row[0], race)
