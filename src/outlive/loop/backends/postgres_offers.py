"""Offered tools in PostgreSQL. Each call is one transaction, or one statement that only reads."""

from collections.abc import Collection, Mapping, Sequence

from outlive.loop.backends import offer_rows
from outlive.loop.backends.offer_rows import to_offered, to_row
from outlive.loop.backends.postgres_agents import numbered
from outlive.loop.tools.own.offers import Offered, decide_offer
from outlive.loop.tools.own.wire import Offer
from outlive.storage.postgres import Connection, PostgresDatabase

_MANY = offer_rows.ONE.replace("= ?", "= ANY($1)")
_DELETE_QUEUE = numbered(offer_rows.DELETE_QUEUE)
_DELETE_ONE = numbered(offer_rows.DELETE_ONE)
_INSERT = numbered(offer_rows.INSERT)
# What one offer may do depends on all the others. Ends with the transaction.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('tool_offers', 0))"


class PostgresOffers:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(self, offer: Offer, at: str) -> Sequence[Offered]:
        async def write(connection: Connection) -> Sequence[Offered]:
            await connection.execute(_LOCK)
            rows = decide_offer(await _all(connection), offer, at)
            await connection.execute(_DELETE_QUEUE, offer.queue)
            for row in rows:
                await connection.execute(_DELETE_ONE, row.name)
                await connection.execute(_INSERT, *to_row(row))
            return rows

        return await self._database.write(write)

    async def find(self, names: Collection[str]) -> Mapping[str, Offered]:
        rows = await self._database.run(lambda connection: connection.fetch(_MANY, [*names]))
        return {each.name: each for each in map(to_offered, rows)}

    async def list(self) -> Sequence[Offered]:
        return await self._database.run(_all)


async def _all(connection: Connection) -> Sequence[Offered]:
    return [to_offered(row) for row in await connection.fetch(offer_rows.ALL)]
