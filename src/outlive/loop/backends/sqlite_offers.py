"""Offered tools in SQLite. Each call is one transaction, or one that only reads."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from outlive.loop.backends import offer_rows
from outlive.loop.backends.offer_rows import to_offered, to_row
from outlive.loop.tools.own.offers import Offered, decide_offer
from outlive.loop.tools.own.wire import Offer
from outlive.storage.sqlite import SqliteDatabase


class SqliteOffers:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def put(self, offer: Offer, at: str) -> Sequence[Offered]:
        def write(connection: sqlite3.Connection) -> Sequence[Offered]:
            rows = decide_offer(_all(connection), offer, at)
            connection.execute(offer_rows.DELETE_QUEUE, (offer.queue,))
            for row in rows:
                connection.execute(offer_rows.DELETE_ONE, (row.name,))
                connection.execute(offer_rows.INSERT, to_row(row))
            return rows

        return await self._database.write(write)

    async def find(self, names: Collection[str]) -> Mapping[str, Offered]:
        def read(connection: sqlite3.Connection) -> list[Offered]:
            rows = [connection.execute(offer_rows.ONE, (name,)).fetchone() for name in names]
            return [to_offered(row) for row in rows if row is not None]

        return {each.name: each for each in await self._database.read(read)}

    async def list(self) -> Sequence[Offered]:
        return await self._database.read(_all)


def _all(connection: sqlite3.Connection) -> Sequence[Offered]:
    return [to_offered(row) for row in connection.execute(offer_rows.ALL).fetchall()]
