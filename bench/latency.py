"""From the call of append to the frame at a follower, beside the barest hop between two processes."""

import socket
import time

import anyio
import anyio.to_thread

from bench.api import Api, start_api
from bench.followers import RemoteFollowers
from bench.house import House, open_house, settings_of
from bench.measure import Say, Section, percentile
from bench.private_servers import private_redis
from bench.rows import TEXT, message
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.base import ConversationId
from outlive.conversation.position import START

NAME = "latency"
TITLE = "Latency"
UNIT = "ms"
PAUSE_S = 0.004  # between two appends: what is measured is a quiet system, not a queue
PERCENTS = (50, 95, 99)
WHAT = (
    "One append every few milliseconds, one follower. The time runs from the call of append, so it holds the sync "
    "of the disk (`append acknowledged` is that part alone) and the way through the feed. `local feed` and `Redis "
    "feed`: the follower is in the writer's process, the broker beside it. `SSE`: another process writes, the API "
    "serves, a third process reads. The hop is one way over a unix socket between two processes: half of a round "
    "trip."
)


def _hops(workshop: Workshop, count: int) -> list[float]:
    path = workshop.path("hop") / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)
        process = workshop.start_python("bench.echo", str(path))
        listener.settimeout(30.0)
        peer, _ = listener.accept()
        taken: list[float] = []
        with peer:
            for _ in range(count):
                started_at = time.perf_counter()
                peer.sendall(b"x" * 500)
                peer.recv(65536)
                taken.append((time.perf_counter() - started_at) * 1000 / 2)
                time.sleep(PAUSE_S)
        process.stop()
    return taken


def _text(serial: int, of: int) -> str:
    return f"{TEXT}round 1 serial {serial}.{' end of round 1;' if serial == of - 1 else ''}"


async def _append_all(house: House, conversation: ConversationId, count: int) -> tuple[list[float], list[float]]:
    """When each append was called, and how long it took to be acknowledged."""
    called: list[float] = []
    acknowledged: list[float] = []
    for serial in range(count):
        append = message(conversation, _text(serial, count))
        called.append(time.perf_counter())
        await house.conversations.append(append)
        acknowledged.append((time.perf_counter() - called[-1]) * 1000)
        await anyio.sleep(PAUSE_S)
    return called, acknowledged


async def _in_process(house: House, count: int) -> tuple[list[float], list[float]]:
    conversation = await house.make_conversation()
    seen: list[float] = []
    async with house.conversations.follow(conversation, START) as following:
        while not await following.next_frames():
            pass
        while await following.next_frames():
            pass  # caught up when there is nothing more to read

        async def follow() -> None:
            while len(seen) < count:
                frames = await following.next_frames()
                now = time.perf_counter()
                seen.extend([now] * len(frames))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            called, acknowledged = await _append_all(house, conversation, count)
    return [(at - start) * 1000 for at, start in zip(seen, called, strict=True)], acknowledged


async def _over_http(workshop: Workshop, house: House, api: Api, count: int) -> list[float]:
    conversation = await house.make_conversation()
    path = api.stream_path(conversation)
    follower = RemoteFollowers(workshop, api.port, [path], 1, ready="conversation.created", token=api.token)
    follower.expect(1, count, "end of round 1;", stamps=True)
    called, _ = await _append_all(house, conversation, count)
    answer = await anyio.to_thread.run_sync(follower.finish)
    follower.stop()
    arrivals = {int(serial): float(at) for serial, at in answer["arrivals"].items()}
    return [(arrivals[serial] - start) * 1000 for serial, start in enumerate(called)]


def _add(section: Section, name: str, values: list[float]) -> None:
    for percent in PERCENTS:
        section.add(f"{name}, p{percent}", UNIT, [percentile(values, percent)])


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT)
    count = scale.latency_appends
    say("a bare hop over a unix socket")
    _add(section, "unix socket hop", await anyio.to_thread.run_sync(_hops, workshop, count))
    say("local feed, in process")
    async with open_house(settings_of(workshop.path("local"))) as house:
        local, acknowledged = await _in_process(house, count)
    _add(section, "append acknowledged", acknowledged)
    _add(section, "local feed", local)
    with private_redis() as url:
        if url is None:
            section.notes.append("Redis feed: skipped, there is no redis-server here.")
        else:
            say("Redis feed, in process")
            async with open_house(settings_of(workshop.path("redis"), feed=url)) as house:
                _add(section, "Redis feed", (await _in_process(house, count))[0])
    say("server-sent events over HTTP")
    settings = settings_of(workshop.path("http"))
    api = start_api(workshop, settings)
    async with open_house(settings, with_broker=False) as house:
        _add(section, "SSE", await _over_http(workshop, house, api, count))
    api.process.stop()
    return section
