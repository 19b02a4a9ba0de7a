"""What followers cost that only wait: memory and processor time of the API process."""

import time

import anyio
import anyio.to_thread

from bench.api import start_api
from bench.followers import RemoteFollowers
from bench.house import open_house, settings_of
from bench.measure import Say, Section
from bench.rows import message
from bench.scale import Scale
from bench.workshop import Workshop

NAME = "idle"
TITLE = "Idle followers"
CONVERSATIONS = 100
WHAT = (
    "{scale.idle_followers:,} followers of 100 conversations, connected and caught up, with nothing to be told "
    "but the pings. Memory is what the API process grew by, per follower (its share of all pages); processor time "
    "is counted over {scale.idle_s:g} s in which nothing happens, in per cent of one core, and beside it the same "
    "with no follower. At the end one message goes to each conversation, to show that they are all still there."
)


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    settings = settings_of(workshop.path("idle"))
    api = start_api(workshop, settings)

    async def cpu_percent() -> float:
        before, started_at = api.process.cpu_s(), time.perf_counter()
        await anyio.sleep(scale.idle_s)
        return (api.process.cpu_s() - before) / (time.perf_counter() - started_at) * 100

    async with open_house(settings, with_broker=False) as house:
        made = [await house.make_conversation() for _ in range(CONVERSATIONS)]
        paths = [api.stream_path(conversation) for conversation in made]
        say("connecting a few followers first, so that what is made once is made")
        first = RemoteFollowers(workshop, api.port, paths, 20, ready="conversation.created", token=api.token)
        first.stop()
        await anyio.sleep(min(1.0, scale.idle_s))
        empty = api.process.memory()
        say("nobody follows")
        section.add("processor, no follower", "% of a core", [await cpu_percent()])
        say(f"connecting {scale.idle_followers:,} followers")
        started_at = time.perf_counter()
        followers = await anyio.to_thread.run_sync(
            lambda: RemoteFollowers(
                workshop, api.port, paths, scale.idle_followers, ready="conversation.created", token=api.token
            )
        )
        section.add(
            "connecting and catching up", "followers/s", [scale.idle_followers / (time.perf_counter() - started_at)]
        )
        await anyio.sleep(min(1.0, scale.idle_s))
        say(f"{scale.idle_followers:,} followers wait for {scale.idle_s:g} s")
        section.add("processor", "% of a core", [await cpu_percent()])
        grown = api.process.memory() - empty
        section.add("memory", "KiB/follower", [grown / 1024 / scale.idle_followers])
        for conversation in made:
            await house.conversations.append(message(conversation, "round 1 serial 0. end of round 1;"))
        followers.expect(1, 1, "end of round 1;")
        await anyio.to_thread.run_sync(followers.finish)
        followers.stop()
    api.process.stop()
    return section
