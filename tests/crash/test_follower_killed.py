"""A client killed a hundred times ends with exactly what an uninterrupted one has, on both feeds."""

import multiprocessing
import random
from collections import Counter
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from crash.following import follow, read_diary
from eventually import eventually
from integration.client.writing import Turn, open_turn
from integration.stack.homes import Home
from outlive.client import View
from outlive.client.wire import event_of
from services.redis import RedisService

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(420)]

EVENTS = 1_000
RETRIED = 20
KILLS = 100


class Client:
    """One client process after the other, with one diary."""

    def __init__(self, endpoint: dict[str, str], conversation: str, diary: Path) -> None:
        self._arguments = (endpoint["url"], endpoint["token"], conversation, diary)
        self.diary = diary

    def start(self) -> ForkServerProcess:
        # A fork server has the imports done: a hundred real processes in seconds.
        process = multiprocessing.get_context("forkserver").Process(target=follow, args=self._arguments)
        process.start()
        return process

    async def run_to_the_end(self) -> None:
        process = self.start()
        await anyio.to_thread.run_sync(process.join, 360)
        assert process.exitcode == 0


async def write_a_thousand_events(turn: Turn, allowed: anyio.Semaphore, head: int) -> None:
    """A turn of exactly that many events; each step waits for its permission, so that the kills fall all over it."""
    await turn.begin()
    written = head + 1
    retried = 0
    number = 0
    while written < EVENTS - 1:
        await allowed.acquire()
        number += 1
        left = EVENTS - 1 - written
        is_retried = retried < RETRIED and number % 8 == 0 and left > 5
        if is_retried or left in (2, 4):
            await turn.answer(number, dead_attempts=int(is_retried))
            written += 3 if is_retried else 2
            retried += is_retried
        else:
            await turn.tool(number)
            written += 3
    await turn.finish()
    assert (written + 1, retried) == (EVENTS, RETRIED)


def size_of(diary: Path) -> int:
    return diary.stat().st_size if diary.exists() else 0


def has_grown_to(diary: Path, size: int) -> bool:
    return size_of(diary) >= size


async def kill_again_and_again(client: Client, allowed: anyio.Semaphore, dice: random.Random) -> None:
    for _ in range(KILLS):
        process = client.start()
        for _ in range(4):
            allowed.release()
        size = size_of(client.diary)
        wanted = size + dice.choice([0, 1, 500, 2_000, 6_000])
        with anyio.move_on_after(dice.uniform(0.05, 0.5)):
            await eventually(partial(has_grown_to, client.diary, wanted))
        process.kill()
        await anyio.to_thread.run_sync(process.join)


def told(diary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything but live output, which may differ: it is a matter of when one looks."""
    return [event for event in diary if event["type"] not in ("model.delta", "tool.output")]


@pytest.mark.parametrize("feed", ["local", "redis"])
async def test_a_client_killed_a_hundred_times_has_what_an_uninterrupted_one_has(
    tmp_path: Path, feed: str, redis_server: RedisService, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "local" if feed == "local" else redis_server.url
    home = Home(tmp_path / "home", OUTLIVE_FEED__URL=url, OUTLIVE_LOOP__ENABLED="false")
    monkeypatch.setenv("OUTLIVE_FEED__URL", url)  # for the writer, which is here
    await anyio.to_thread.run_sync(home.up)
    try:
        conversation = home.create("a long turn")
        sent = home.call("POST", f"/v1/conversations/{conversation}/messages", {"text": "go"})
        killed = Client(home.endpoint, conversation, tmp_path / "killed")
        steady = Client(home.endpoint, conversation, tmp_path / "steady")
        allowed = anyio.Semaphore(0)
        async with open_turn(home.path, conversation, sent["turn_id"]) as turn, anyio.create_task_group() as group:
            group.start_soon(steady.run_to_the_end)
            group.start_soon(write_a_thousand_events, turn, allowed, sent["seq"])
            await kill_again_and_again(killed, allowed, random.Random(feed))
            for _ in range(EVENTS):
                allowed.release()
            await killed.run_to_the_end()
        one, other = read_diary(killed.diary), read_diary(steady.diary)
        assert [event["seq"] for event in told(one) if event["seq"]] == list(range(1, EVENTS + 1))
        assert Counter(event["type"] for event in one)["step.rewound"] == RETRIED
        assert [strip_position(event) for event in told(one)] == [strip_position(event) for event in told(other)]
        transcript = home.call("GET", f"/v1/conversations/{conversation}/transcript")["items"]
        for diary in (one, other):
            view = View()
            for event in diary:
                view.fold(event_of(event))
            assert view.items() == transcript
    finally:
        await anyio.to_thread.run_sync(home.stop)


def strip_position(event: dict[str, Any]) -> dict[str, Any]:
    """Positions tell how much live output was seen, so they may differ too."""
    return {name: value for name, value in event.items() if name != "position"}
