"""Following a real stack through everything that can happen to a connection: each thing once, and the same end."""

import random
import socket
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from eventually import eventually
from integration.client.proxy import WHOLE, Fate, open_proxy
from integration.client.writing import Turn, open_turn
from integration.stack.homes import Home
from outlive.client import AsyncClient, AsyncConversation, Event, View

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("client") / "home", OUTLIVE_LOOP__ENABLED="false")
    home.up()
    yield home
    home.stop()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home", OUTLIVE_LOOP__ENABLED="false")
    home.up()
    yield home
    home.stop()


class Screen:
    """What a follower was shown, and what it makes of it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.view = View()

    def take(self, event: Event) -> None:
        self.events.append(event)
        self.view.fold(event)

    @property
    def seqs(self) -> list[int]:
        return [event.seq for event in self.events if event.seq is not None]

    @property
    def durable(self) -> list[tuple[int | None, str, int | None]]:
        """All but the deltas: these may be missing, in any place."""
        return [
            (event.seq, event.type, event.attempt)
            for event in self.events
            if event.type not in ("model.delta", "tool.output")
        ]

    def is_live(self, attempt: int) -> bool:
        """Whether the last thing shown is live output of a step that is going on, in this attempt of it."""
        last = self.events[-1] if self.events else None
        going_on = [item["step"] for item in self.view.open_items()]
        return last is not None and last.type == "model.delta" and last.attempt == attempt and last.step in going_on

    def check_deltas(self) -> None:
        """No character of the live output was shown twice, and none of a dead attempt after its rewind."""
        ends: dict[tuple[str | None, int | None], int] = {}
        latest: dict[str | None, int] = {}
        for event in self.events:
            if event.type == "step.rewound":
                latest[event.step] = event.attempt or 0
            if event.type in ("model.delta", "tool.output"):
                assert (event.attempt or 0) >= latest.get(event.step, 0)
                key = (event.step, event.attempt)
                assert event.data["offset"] >= ends.get(key, 0)
                ends[key] = event.data["offset"] + len(event.data["text"])


async def watch(conversation: AsyncConversation, screen: Screen, **options: Any) -> None:
    """Follow until the turn is finished."""
    async with aclosing(conversation.follow(**options).__aiter__()) as events:  # type: ignore[type-var]
        async for event in events:
            screen.take(event)
            if event.type == "turn.finished":
                return


async def write(turn: Turn, answers: int) -> None:
    await turn.begin()
    for number in range(answers):
        await turn.answer(number, dead_attempts=number % 3)
        if number % 4 == 0:
            await turn.tool(number)
    await turn.finish()


async def check(conversation: AsyncConversation, *screens: Screen) -> None:
    transcript = await conversation.transcript()
    for screen in screens:
        assert screen.seqs == list(range(1, transcript.head + 1))
        assert screen.durable == screens[0].durable
        assert screen.view.items() == [*transcript.items]
        screen.check_deltas()


def client_of(home: Home, url: str | None = None) -> AsyncClient:
    return AsyncClient(url or home.endpoint["url"], home.endpoint["token"])


def port_of(home: Home) -> int:
    port = urlsplit(home.endpoint["url"]).port
    assert port is not None
    return port


async def test_a_view_equals_the_servers_transcript_with_and_without_deltas(running: Home) -> None:
    early, late, quiet = Screen(), Screen(), Screen()
    async with client_of(running) as client:
        conversation = await client.conversations.create(title="view")
        sent = await conversation.send("Hello")
        async with open_turn(running.path, conversation.id, sent.turn_id) as turn, anyio.create_task_group() as group:
            group.start_soon(watch, conversation, early)
            await eventually(lambda: early.view.head == 2)
            await write(turn, 12)
        await watch(conversation, late)
        async with aclosing(conversation.follow(deltas=False).__aiter__()) as events:  # type: ignore[type-var]
            async for event in events:
                quiet.take(event)
                if event.type == "turn.finished":
                    break
        await check(conversation, early, late, quiet)
    assert any(event.type == "model.delta" for event in early.events)
    assert any(event.type == "step.rewound" for event in late.events)


async def test_a_follower_cut_off_at_random_bytes_more_than_fifty_times_equals_an_uninterrupted_one(
    running: Home,
) -> None:
    rng = random.Random(2)
    cut, whole = Screen(), Screen()
    number = 0

    def fate(number: int) -> Fate:
        return Fate(rng.randrange(250, 2_500)) if number <= 60 else WHOLE

    async def until_live() -> None:
        """So that cuts fall into live output too, not only into what is in the log already."""
        await eventually(lambda: cut.is_live(attempt=number % 3 + 1), within_s=30)

    async with (
        open_proxy(port_of(running), fate) as proxy,
        client_of(running) as direct,
        client_of(running, proxy.url) as through,
    ):
        conversation = await direct.conversations.create(title="cuts")
        sent = await conversation.send("Hello")
        behind = AsyncConversation(through._transport, conversation.facts)
        async with open_turn(running.path, conversation.id, sent.turn_id) as turn, anyio.create_task_group() as group:
            group.start_soon(watch, conversation, whole)
            group.start_soon(watch, behind, cut)
            await turn.begin()
            while proxy.cuts <= 50:
                await turn.answer(number, dead_attempts=number % 3, before_seal=until_live)
                number += 1
            await turn.finish()
        await check(conversation, whole, cut)
    assert sum(event.type == "model.delta" for event in cut.events) >= number


async def test_a_connection_that_stalls_is_left_for_another(running: Home) -> None:
    screen = Screen()
    stalls = Fate(900, "stall")
    async with (
        open_proxy(port_of(running), lambda _: stalls if proxy.stalls < 3 else WHOLE) as proxy,
        client_of(running) as direct,
        client_of(running, proxy.url) as through,
    ):
        conversation = await direct.conversations.create(title="stall")
        sent = await conversation.send("Hello")
        async with open_turn(running.path, conversation.id, sent.turn_id) as turn:
            await write(turn, 8)
        behind = AsyncConversation(through._transport, conversation.facts)
        with anyio.fail_after(60):
            await watch(behind, screen, silence_s=0.5)
        await check(conversation, screen)
    assert proxy.stalls >= 3  # one more if a connection was left that was only slow


async def test_a_follower_goes_on_when_the_api_is_killed_and_started_again(home: Home) -> None:
    screen = Screen()
    async with client_of(home) as client:
        conversation = await client.conversations.create(title="kills")
        sent = await conversation.send("Hello")
        async with open_turn(home.path, conversation.id, sent.turn_id) as turn, anyio.create_task_group() as group:
            group.start_soon(watch, conversation, screen)
            await turn.begin()
            for number in range(3):
                await turn.answer(number, dead_attempts=1)
                head = (await conversation.refresh()).head
                await eventually(lambda head=head: screen.view.head >= head, within_s=60)  # type: ignore[misc]
                pid = home.api_pid()
                home.kill(pid)
                await turn.answer(number + 100, dead_attempts=1)  # while nobody serves: the writer needs no API
                await eventually(lambda pid=pid: home.api_pid() != pid, within_s=60)  # type: ignore[misc]
            await turn.finish()
        await check(conversation, screen)


async def test_a_follower_finds_the_stack_again_at_another_port(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(home.path))
    monkeypatch.delenv("OUTLIVE_URL", raising=False)
    screen = Screen()
    async with AsyncClient() as client:
        conversation = await client.conversations.create(title="moves")
        sent = await conversation.send("Hello")
        async with anyio.create_task_group() as group:
            group.start_soon(watch, conversation, screen)
            await eventually(lambda: screen.view.head == 2)
            before = port_of(home)
            await anyio.to_thread.run_sync(home.stop)
            with socket.socket() as taken:  # so that it cannot be the same port again
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                taken.bind(("127.0.0.1", before))
                taken.listen()
                await anyio.to_thread.run_sync(home.up)
            assert port_of(home) != before
            async with open_turn(home.path, conversation.id, sent.turn_id) as turn:
                await write(turn, 2)
        await check(conversation, screen)


async def test_a_post_whose_answers_are_cut_is_done_once(running: Home) -> None:
    rng = random.Random(3)

    def fate(number: int) -> Fate:
        return Fate(rng.randrange(1, 120)) if number % 3 else Fate(400)

    async with (
        open_proxy(port_of(running), fate) as proxy,
        client_of(running, proxy.url) as client,
        client_of(running) as direct,
    ):
        known = await direct.conversations.create(title="onlyonce")
        conversation = AsyncConversation(client._transport, known.facts)
        for number in range(8):
            await conversation.send(f"message {number}")
        texts = [event.data["text"] async for event in known.events() if event.type == "message.sent"]
    assert proxy.cuts > 8
    assert texts == [f"message {number}" for number in range(8)]


async def test_a_conversation_whose_making_was_not_answered_is_made_once(running: Home) -> None:
    async with (
        open_proxy(port_of(running), lambda number: Fate(30) if number <= 4 else WHOLE) as proxy,
        client_of(running, proxy.url) as client,
        client_of(running) as direct,
    ):
        made = await client.conversations.create(title="madeonce")
        found = await direct.conversations.search("madeonce", limit=None)
    assert proxy.cuts == 4
    assert [each.id for each in found] == [made.id]
