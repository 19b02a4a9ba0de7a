"""Appends per second, acknowledged and durable: one writer, 64 writers, and a bare loop in the same database."""

import sqlite3
import time
from itertools import count

import anyio

from bench.house import House, open_house, settings_of
from bench.measure import Contender, Say, Section, take_turns
from bench.rows import bare_row, connect_bare, messages, write_bare
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.base import ConversationId, new_operation_id
from outlive.conversation.log import Append, EventLog

NAME = "appends"
TITLE = "Appends, SQLite"
UNIT = "appends/s"
WHAT = (
    "One message of 110 characters per append, durable (synced) when acknowledged. The bare loop writes the same "
    "rows into the same table with the same settings: BEGIN IMMEDIATE, INSERT, COMMIT, one row at a time, with "
    "the values made beforehand; it keeps no heads, folds no state, knows no doubles and indexes no words. `one "
    "writer, whole path` is `Conversations.send`: the event made and checked, appended, and followers told."
)


def many_name(scale: Scale) -> str:
    return f"{scale.writers} writers, a conversation each"


def one_conversation_name(scale: Scale) -> str:
    return f"{scale.writers} writers, one conversation"


def compare_all(section: Section, scale: Scale) -> None:
    section.compare("one writer", "bare loop", "at least", 0.5)
    section.compare(many_name(scale), "one writer", "at least", 5.0)
    section.compare_fast("one writer", "bare loop", "at least", 0.5)
    section.compare_fast(many_name(scale), "one writer", "at least", 5.0)
    section.compare(one_conversation_name(scale), "one writer")
    section.compare(many_name(scale), "bare loop")


async def append_all(log: EventLog, batches: list[list[Append]]) -> float:
    """Appends per second of as many writers as there are batches, each waiting for its own acknowledgements."""

    async def write(appends: list[Append]) -> None:
        for append in appends:
            await log.append(append)

    started_at = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for appends in batches:
            tasks.start_soon(write, appends)
    return sum(map(len, batches)) / (time.perf_counter() - started_at)


class _Bare:
    def __init__(self, connection: sqlite3.Connection, appends: int) -> None:
        self._connection = connection
        self._appends = appends
        self._seqs = count(1)

    async def run(self) -> float:
        rows = [
            bare_row(append, 1, next(self._seqs)) for append in messages(ConversationId("conv_bare"), self._appends)
        ]
        started_at = time.perf_counter()
        write_bare(self._connection, rows)  # in this thread: a bare loop has no event loop to keep free
        return len(rows) / (time.perf_counter() - started_at)


def _contenders(house: House, mine: list[ConversationId], scale: Scale) -> list[Contender]:
    async def one() -> float:
        return await append_all(house.log, [messages(mine[0], scale.appends_one)])

    async def whole() -> float:
        started_at = time.perf_counter()
        for append in range(scale.appends_one):
            await house.conversations.send(new_operation_id(), mine[1], actor="prin_bench", text=f"{'x ' * 50}{append}")
        return scale.appends_one / (time.perf_counter() - started_at)

    async def many() -> float:
        return await append_all(house.log, [messages(conversation, scale.appends_each) for conversation in mine])

    async def crowd() -> float:
        return await append_all(house.log, [messages(mine[0], scale.appends_each) for _ in mine])

    return [
        Contender("one writer", UNIT, one),
        Contender(many_name(scale), UNIT, many),
        Contender(one_conversation_name(scale), UNIT, crowd),
        Contender("one writer, whole path", UNIT, whole),
    ]


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT)
    bare_settings = settings_of(workshop.path("bare"))
    async with open_house(bare_settings) as house:  # makes the same tables
        bare = connect_bare(house.database_path)
    try:
        async with open_house(settings_of(workshop.path("appends"))) as house:
            mine = [await house.make_conversation() for _ in range(scale.writers)]
            contenders = [Contender("bare loop", UNIT, _Bare(bare, scale.appends_one).run)]
            contenders += _contenders(house, mine, scale)
            section.readings = await take_turns(contenders, scale.append_rounds, say)
    finally:
        bare.close()
    compare_all(section, scale)
    section.compare("one writer, whole path", "bare loop")
    return section
