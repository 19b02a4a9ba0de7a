"""One writer, many followers over HTTP: frames delivered per second, beside a bare broadcast server."""

import time
from collections.abc import Awaitable, Callable
from itertools import count

import anyio.to_thread

from bench.api import Api, start_api
from bench.followers import RemoteFollowers
from bench.house import House, open_house, settings_of
from bench.measure import Contender, Say, Section, take_turns
from bench.rows import TEXT, message
from bench.scale import Scale
from bench.sse import Poster, as_json
from bench.workshop import Process, Workshop
from outlive.base import ConversationId, new_operation_id

NAME = "fan-out"
TITLE = "Fan-out"
UNIT = "frames/s"
BATCH = 50
WHAT = (
    "{scale.followers} followers of one conversation, all in one process with raw sockets; the server is a "
    "process of its own; the writer is a third. Counted from the first write until the last follower has the last "
    "frame, each as fast as it goes; after each round every follower is checked: everything, once, in order. The "
    "bare server is uvicorn with a plain ASGI application: one asyncio queue per client, one write per frame, no "
    "log, no positions, nothing kept; `joined` writes all that waits for a client at once. `posted` goes through "
    "POST on both sides, one after the other; `appended` is a writer process on the database and the feed, as the "
    "loop's workers are, its rival posts as many at a time."
)


def _text(round_number: int, serial: int, of: int) -> str:
    end = f" {_mark(round_number)}" if serial == of - 1 else ""
    return f"{TEXT}round {round_number} serial {serial}.{end}"


def _mark(round_number: int) -> str:
    return f"end of round {round_number};"


class _Side:
    """Followers of one server, and the rounds they have had."""

    def __init__(self, server: Process, followers: RemoteFollowers) -> None:
        self.server = server
        self.followers = followers
        self.cpu_us: dict[str, list[float]] = {}  # of the server per frame, by name of the contender
        self._rounds = count(1)

    async def measure(self, name: str, events: int, write: Callable[[int], Awaitable[None]]) -> float:
        """Frames per second of a round that `write` writes."""
        number = next(self._rounds)
        frames = events * self.followers.count
        self.followers.expect(number, events, _mark(number))
        cpu_s = self.server.cpu_s()
        started_at = time.perf_counter()
        await write(number)
        answer = await anyio.to_thread.run_sync(self.followers.finish)
        self.cpu_us.setdefault(name, []).append((self.server.cpu_s() - cpu_s) / frames * 1e6)
        return frames / (float(answer["at"]) - started_at)


class _Bare(_Side):
    def __init__(self, workshop: Workshop, path: str, followers: int) -> None:
        server = workshop.start_python("bench.bare_sse")
        port = int(server.hear()["port"])
        super().__init__(server, RemoteFollowers(workshop, port, [path], followers, ready=": ready"))
        self._port = port

    async def run(self, name: str, events: int, at_once: int) -> float:
        def post(number: int) -> None:
            lines = [as_json(data={"text": _text(number, serial, events)}) for serial in range(events)]
            with Poster(self._port, "/publish") as poster:
                for at in range(0, events, at_once):
                    poster.post(b"\n".join(lines[at : at + at_once]), "none")

        async def write(number: int) -> None:
            await anyio.to_thread.run_sync(post, number)

        return await self.measure(name, events, write)

    def stop(self) -> None:
        self.followers.stop()
        self.server.stop()


class _Outlive(_Side):
    def __init__(
        self, workshop: Workshop, api: Api, house: House, conversation: ConversationId, followers: int
    ) -> None:
        path = api.stream_path(conversation)
        super().__init__(
            api.process,
            RemoteFollowers(workshop, api.port, [path], followers, ready="conversation.created", token=api.token),
        )
        self._house = house
        self._conversation = conversation
        self._api = api

    async def post(self, name: str, events: int) -> float:
        def post(number: int) -> None:
            with Poster(self._api.port, f"/v1/conversations/{self._conversation}/messages", self._api.token) as poster:
                for serial in range(events):
                    poster.post(as_json(text=_text(number, serial, events)), new_operation_id())

        async def write(number: int) -> None:
            await anyio.to_thread.run_sync(post, number)

        return await self.measure(name, events, write)

    async def append(self, name: str, events: int, at_once: int) -> float:
        async def write(number: int) -> None:
            made = [message(self._conversation, _text(number, serial, events)) for serial in range(events)]
            for at in range(0, events, at_once):
                together = tuple(append.events[0] for append in made[at : at + at_once])
                await self._house.conversations.append(made[at]._replace(events=together))

        return await self.measure(name, events, write)

    def stop(self) -> None:
        self.followers.stop()


ONE, MANY = "one by one", f"by {BATCH}"
POSTED, APPENDED, BURST = f"posted {ONE}", f"appended {ONE}", f"appended {MANY}"
BARE_ONE, BARE_MANY, JOINED = f"bare, posted {ONE}", f"bare, posted {MANY}", f"bare joined, posted {MANY}"


def _contenders(bare: _Bare, joined: _Bare, outlive: _Outlive, scale: Scale) -> list[Contender]:
    posts, burst = scale.fan_out_posts, scale.fan_out_burst
    return [
        Contender(BARE_ONE, UNIT, lambda: bare.run(BARE_ONE, posts, 1)),
        Contender(POSTED, UNIT, lambda: outlive.post(POSTED, posts)),
        Contender(APPENDED, UNIT, lambda: outlive.append(APPENDED, posts, 1)),
        Contender(BARE_MANY, UNIT, lambda: bare.run(BARE_MANY, burst, BATCH)),
        Contender(JOINED, UNIT, lambda: joined.run(JOINED, burst, BATCH)),
        Contender(BURST, UNIT, lambda: outlive.append(BURST, burst, BATCH)),
    ]


def _compare(section: Section, cpu_us: dict[str, list[float]]) -> None:
    for name, rounds in cpu_us.items():
        section.add(f"server's processor, {name}", "µs/frame", rounds[1:])  # not the round that warmed up
    section.compare(BURST, BARE_MANY, "at least", 0.5)
    section.compare(APPENDED, BARE_ONE, "at least", 0.5)
    section.compare(POSTED, BARE_ONE, "at least", 0.5)
    section.compare(BURST, JOINED)


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
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
    _compare(section, {**bare.cpu_us, **joined.cpu_us, **outlive.cpu_us})
    return section
