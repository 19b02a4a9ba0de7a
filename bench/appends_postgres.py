"""Appends per second in PostgreSQL, beside a bare loop in the same server."""

import time
from itertools import count

import asyncpg

from bench.appends import NAME as SQLITE_NAME
from bench.appends import UNIT, append_all, compare_all, many_name, one_conversation_name
from bench.house import open_house, settings_of
from bench.measure import Contender, Say, Section, take_turns
from bench.private_servers import private_postgres
from bench.rows import bare_row, messages
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.base import ConversationId

NAME = f"{SQLITE_NAME}-postgres"
TITLE = "Appends, PostgreSQL"
WHAT = (
    "As above, in a private PostgreSQL with fsync on. The bare loop is asyncpg over one connection: one prepared "
    "INSERT of the same row into the same table per transaction, synchronous_commit on. Outlive's one writer "
    "takes one round trip for an append of what it remembers (the statement compares the head), else one more to look."
)
_INSERT = """
INSERT INTO events (conversation, seq, id, turn, step, attempt, type, v, at, actor, data, blob, batch, batch_size)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""


async def _measure(section: Section, workshop: Workshop, dsns: list[str], scale: Scale, say: Say) -> None:
    bare_dsn, dsn = dsns
    async with open_house(settings_of(workshop.path("bare"), database=bare_dsn)):
        pass  # makes the same tables
    bare = await asyncpg.connect(bare_dsn, server_settings={"synchronous_commit": "on"})
    seqs = count(1)

    async def bare_loop() -> float:
        made = messages(ConversationId("conv_bare"), scale.appends_one)
        rows = [bare_row(append, 1, next(seqs)) for append in made]
        started_at = time.perf_counter()
        for row in rows:
            await bare.execute(_INSERT, *row)
        return len(rows) / (time.perf_counter() - started_at)

    try:
        async with open_house(settings_of(workshop.path("appends"), database=dsn)) as house:
            mine = [await house.make_conversation() for _ in range(scale.writers)]

            async def one() -> float:
                return await append_all(house.log, [messages(mine[0], scale.appends_one)])

            async def many() -> float:
                return await append_all(house.log, [messages(each, scale.appends_each) for each in mine])

            async def crowd() -> float:
                return await append_all(house.log, [messages(mine[0], scale.appends_each) for _ in mine])

            contenders = [
                Contender("bare loop", UNIT, bare_loop),
                Contender("one writer", UNIT, one),
                Contender(many_name(scale), UNIT, many),
                Contender(one_conversation_name(scale), UNIT, crowd),
            ]
            section.readings = await take_turns(contenders, scale.append_rounds, say)
    finally:
        await bare.close()


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT)
    say("starting a PostgreSQL")
    with private_postgres("bare", "outlive") as dsns:
        if dsns is None:
            section.skipped = "there is no PostgreSQL here (Debian package postgresql)."
            return section
        await _measure(section, workshop, dsns, scale, say)
    compare_all(section, scale)
    return section
