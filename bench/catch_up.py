"""Catching up with a long conversation, beside a bare read of the same rows: in this process, and over HTTP."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import anyio.to_thread

from bench.api import start_api
from bench.house import House, open_house, settings_of
from bench.measure import Contender, Reading, Say, Section, take_turns
from bench.rows import LAST, SELECT_EVENTS, TEXT, envelope_json, message
from bench.scale import Scale
from bench.sse import Read, read_until
from bench.workshop import Workshop
from outlive.base import ConversationId
from outlive.conversation.position import START
from outlive.wiring.settings import Settings

NAME = "catch-up"
TITLE = "Catch-up"
UNIT = "ms"
WHAT = (
    "A follower that starts from the beginning of a conversation of {scale.catch_up_events:,} events. Over HTTP "
    "both sides do the same work: read the rows, put each in an envelope, send it as a server-sent event to a "
    "client that reads to the end; the bare server is uvicorn with a plain ASGI application, one SELECT, 500 "
    "frames per write. That is the criterion. In this process: `follow` until the head, beside one SELECT with "
    "fetchall, without and with the envelopes made."
)


def _read_bare(path: Path, *, with_envelopes: bool) -> float:
    connection = sqlite3.connect(path)
    try:
        started_at = time.perf_counter()
        rows = connection.execute(SELECT_EVENTS, (1 << 32, 1 << 32 | 0xFFFFFFFF)).fetchall()
        if with_envelopes:
            made = [envelope_json(row) for row in rows]
            assert LAST in made[-1]
        took_s = time.perf_counter() - started_at
    finally:
        connection.close()
    assert LAST in rows[-1][9]
    return took_s * 1000


async def _follow(house: House, conversation: ConversationId, events: int) -> float:
    started_at = time.perf_counter()
    seen: list[Any] = []
    async with house.conversations.follow(conversation, START) as following:
        while len(seen) < events:
            seen += await following.next_frames()
    took_s = time.perf_counter() - started_at
    assert LAST in seen[-1].body.data_json
    return took_s * 1000


async def fill(house: House, events: int) -> ConversationId:
    """A conversation with so many events, the last of them marked."""
    conversation = await house.make_conversation()
    made = [message(conversation, f"{TEXT}{number}") for number in range(events - 2)]
    for at in range(0, len(made), 500):
        together = tuple(append.events[0] for append in made[at : at + 500])
        await house.log.append(made[at]._replace(events=together))
    await house.log.append(message(conversation, LAST))
    assert await house.log.head(conversation) == events
    return conversation


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    events = scale.catch_up_events
    say(f"writing {events:,} events")
    async with open_house(settings_of(workshop.path("catch-up"))) as house:
        conversation = await fill(house, events)

        async def select() -> float:
            return await anyio.to_thread.run_sync(lambda: _read_bare(house.database_path, with_envelopes=False))

        async def select_and_envelope() -> float:
            return await anyio.to_thread.run_sync(lambda: _read_bare(house.database_path, with_envelopes=True))

        async def follow() -> float:
            return await _follow(house, conversation, events)

        contenders = [
            Contender("bare SELECT", UNIT, select),
            Contender("bare SELECT + envelopes", UNIT, select_and_envelope),
            Contender("follow, in process", UNIT, follow),
        ]
        section.readings = await take_turns(contenders, scale.rounds, say)
    section.readings += await _run_http(workshop, house.settings, conversation, scale, say)
    section.compare("stream, over HTTP", "bare server, over HTTP", "at most", 3.0)
    section.compare("follow, in process", "bare SELECT", "at most", 3.0)
    section.compare("follow, in process", "bare SELECT + envelopes")
    section.compare("stream, over HTTP", "bare SELECT + envelopes")
    return section


async def _run_http(
    workshop: Workshop, settings: Settings, conversation: ConversationId, scale: Scale, say: Say
) -> list[Reading]:
    say("starting the API and the bare server")
    api = start_api(workshop, settings)
    bare = workshop.start_python("bench.bare_sse", "--database", str(settings.sqlite_path))
    port = int(bare.hear()["port"])
    mark = LAST.encode()

    def check(read: Read) -> float:
        count = read.body.count(b"\ndata: ")
        assert count == scale.catch_up_events, count
        return read.seconds * 1000

    async def from_bare() -> float:
        return check(await anyio.to_thread.run_sync(lambda: read_until(port, "/rows", mark)))

    async def from_api() -> float:
        path = api.stream_path(conversation)
        return check(await anyio.to_thread.run_sync(lambda: read_until(api.port, path, mark, api.token)))

    contenders = [
        Contender("bare server, over HTTP", UNIT, from_bare),
        Contender("stream, over HTTP", UNIT, from_api),
    ]
    try:
        return await take_turns(contenders, scale.rounds, say)
    finally:
        bare.stop()
        api.process.stop()
