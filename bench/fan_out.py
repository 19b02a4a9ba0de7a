"""One writer, many followers over HTTP: frames delivered per second, beside a bare broadcast server."""

import time
from collections.abc import Callable
from itertools import count

import anyio.to_thread

from bench.api import Api, start_api
from bench.followers import RemoteFollowers
from bench.house import House, open_house, settings_of
from bench.measure import Contender, Say, Section, take_turns
from bench.rows import TEXT, message
from bench.scale import Scale
from bench.sse import Poster, as_json
from bench.workshop import Workshop, free_port
from outlive.base import ConversationId, new_operation_id

NAME = "fan-out"
UNIT = "frames/s"
BATCH = 50
WHAT = (
    "{followers} followers of one conversation, all in one process with raw sockets; the server is a process of its own; "
    "the writer is a third. Counted from the first write until the last follower has the last frame, each as fast as it "
    "goes; after each round every follower is checked: everything, once, in order. The bare server is uvicorn with a "
    "plain ASGI application: one asyncio queue per client, one write per frame, no log, no positions, nothing kept; "
    "`joined` writes all that waits for a client at once. `posted` goes through POST on both sides, one after the other; "
    "`appended` is a writer process on the database and the feed, as the loop's workers are, its rival posts as many "
    "at a time."
)


def _text(round_number: int, serial: int, of: int) -> str:
    end = f" {_mark(round_number)}" if serial == of - 1 else ""
    return f"{TEXT}round {round_number} serial {serial}.{end}"


def _mark(round_number: int) -> str:
    return f"end of round {round_number};"


class _Side:
    """Followers of one server, and the rounds they have had."""

    def __init__(self, followers: RemoteFollowers) -> None:
        self.followers = followers
        self._rounds = count(1)

    async def measure(self, events: int, write: Callable[[int], None]) -> float:
        """Frames per second of a round that `write` writes, in a thread."""
        number = next(self._rounds)
        self.followers.expect(number, events, _mark(number))
        started_at = time.perf_counter()
        await anyio.to_thread.run_sync(write, number)
        answer = await anyio.to_thread.run_sync(self.followers.finish)
        return events * self.followers.count / (float(answer["at"]) - started_at)


class _Bare(_Side):
    def __init__(self, workshop: Workshop, path: str, followers: int) -> None:
        port = free_port()
        self._server = workshop.start_python("bench.bare_sse", "--port", str(port))
        self._server.hear()
        super().__init__(RemoteFollowers(workshop, port, [path], followers, ready=": ready"))
        self._port = port

    async def run(self, events: int, at_once: int) -> float:
        def write(number: int) -> None:
            lines = [as_json(data={"text": _text(number, serial, events)}) for serial in range(events)]
            with Poster(self._port, "/publish") as poster:
                for at in range(0, events, at_once):
                    poster.post(b"\n".join(lines[at : at + at_once]), "none")

        return await self.measure(events, write)

    def stop(self) -> None:
        self.followers.stop()
        self._server.stop()


class _Outlive(_Side):
    def __init__(
        self, workshop: Workshop, api: Api, house: House, conversation: ConversationId, followers: int
    ) -> None:
        path = api.stream_path(conversation)
        super().__init__(
            RemoteFollowers(workshop, api.port, [path], followers, ready="conversation.created", token=api.token)
        )
        self._house = house
        self._conversation = conversation
        self._api = api

    async def post(self, events: int) -> float:
        def write(number: int) -> None:
            with Poster(self._api.port, f"/v1/conversations/{self._conversation}/messages", self._api.token) as poster:
                for serial in range(events):
                    poster.post(as_json(text=_text(number, serial, events)), new_operation_id())

        return await self.measure(events, write)

    async def append(self, events: int, at_once: int) -> float:
        number = next(self._rounds)
        made = [message(self._conversation, _text(number, serial, events)) for serial in range(events)]
        self.followers.expect(number, events, _mark(number))
        started_at = time.perf_counter()
        for at in range(0, events, at_once):
            together = tuple(append.events[0] for append in made[at : at + at_once])
            await self._house.conversations.append(made[at]._replace(events=together))
        answer = await anyio.to_thread.run_sync(self.followers.finish)
        return events * self.followers.count / (float(answer["at"]) - started_at)

    def stop(self) -> None:
        self.followers.stop()


def _contenders(bare: _Bare, joined: _Bare, outlive: _Outlive, scale: Scale) -> list[Contender]:
    posts, burst = scale.fan_out_posts, scale.fan_out_burst
    return [
        Contender("bare, posted one by one", UNIT, lambda: bare.run(posts, 1)),
        Contender("posted one by one", UNIT, lambda: outlive.post(posts)),
        Contender("appended one by one", UNIT, lambda: outlive.append(posts, 1)),
        Contender(f"bare, posted by {BATCH}", UNIT, lambda: bare.run(burst, BATCH)),
        Contender(f"bare joined, posted by {BATCH}", UNIT, lambda: joined.run(burst, BATCH)),
        Contender(f"appended by {BATCH}", UNIT, lambda: outlive.append(burst, BATCH)),
    ]


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, "Fan-out", WHAT.format(followers=scale.followers))
    say(f"starting the servers and {scale.followers} followers of each")
    settings = settings_of(workshop.path("fan-out"))
    api = start_api(workshop, settings)
    async with open_house(settings, with_broker=False) as house:
        conversation = await house.make_conversation()
        bare = _Bare(workshop, "/broadcast", scale.followers)
        joined = _Bare(workshop, "/joined", scale.followers)
        outlive = _Outlive(workshop, api, house, conversation, scale.followers)
        try:
            section.readings = await take_turns(_contenders(bare, joined, outlive, scale), scale.rounds, say)
        finally:
            outlive.stop()
            joined.stop()
            bare.stop()
    api.process.stop()
    section.compare("posted one by one", "bare, posted one by one", "at least", 0.5)
    section.compare("appended one by one", "bare, posted one by one", "at least", 0.5)
    section.compare(f"appended by {BATCH}", f"bare, posted by {BATCH}", "at least", 0.5)
    section.compare(f"appended by {BATCH}", f"bare joined, posted by {BATCH}")
    return section
