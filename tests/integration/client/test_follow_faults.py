"""Following through a server that misbehaves: goes on where it was, says each thing once, stops at what cannot heal."""

import json
import time
from collections.abc import Callable

import anyio
import pytest

from eventually import eventually
from integration.client.scripted import Reply, Request, answer, problem, scripted, stream_of
from outlive.base import (
    BrokenError,
    DeniedError,
    InvalidError,
    NotFoundError,
    OutliveError,
    UnauthenticatedError,
    UnavailableError,
)
from outlive.client import AsyncClient, Event
from outlive.client.conversations import AsyncConversation
from outlive.client.wire import facts_of

pytestmark = pytest.mark.anyio

CONVERSATION = "conv_" + "0" * 32
FRAMES = 6


def frame(seq: int) -> str:
    event = {
        "id": f"evt_{seq}",
        "seq": seq,
        "position": f"p{seq}",
        "conversation": CONVERSATION,
        "turn": None,
        "step": None,
        "attempt": None,
        "type": "message.sent",
        "v": 1,
        "at": "2026-01-01T00:00:00.000000Z",
        "actor": "somebody",
        "data": {"text": "zwölf 🦉" * seq},
    }
    return f"id: p{seq}\nevent: message.sent\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"


def conversation(client: AsyncClient) -> AsyncConversation:
    return AsyncConversation(client._transport, facts_of({"id": CONVERSATION, "state": "idle", "head": 0}))


async def take(client: AsyncClient, count: int, after: str | None = None, **options: float) -> list[Event]:
    events: list[Event] = []
    with anyio.fail_after(20):
        async for event in conversation(client).follow(after, **options):  # type: ignore[arg-type]
            events.append(event)
            if len(events) == count:
                break
    return events


def seen(request: Request) -> int:
    """The seq of the last frame that the client says it has."""
    return int(request.headers.get("last-event-id", "p0").removeprefix("p"))


def cut_at(position: int) -> Callable[[int, Request], Reply]:
    """Sends what is missing, but cuts every odd connection at this byte of its answer."""

    def script(number: int, request: Request) -> Reply:
        whole = stream_of(*(frame(seq) for seq in range(seen(request) + 1, FRAMES + 1)))
        return Reply(whole[:position]) if number % 2 else Reply(whole, "hang")

    return script


async def test_a_connection_cut_at_any_byte_loses_and_repeats_nothing() -> None:
    whole = len(stream_of(*(frame(seq) for seq in range(1, FRAMES + 1))))
    for position in range(0, whole, 37):
        async with scripted(cut_at(position)) as server, AsyncClient(server.url, "t") as client:
            events = await take(client, FRAMES)
        assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6], f"cut at byte {position}"
        assert [event.position for event in events] == [f"p{seq}" for seq in range(1, 7)]


async def test_a_server_that_repeats_itself_is_heard_once() -> None:
    def script(number: int, _request: Request) -> Reply:
        return Reply(stream_of(*(frame(seq) for seq in range(1, number + 1))))

    async with scripted(script) as server, AsyncClient(server.url, "t") as client:
        events = await take(client, 4)
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert [seen(request) for request in server.requests] == [0, 1, 2, 3]


async def test_silence_is_taken_for_a_dead_connection() -> None:
    def script(number: int, request: Request) -> Reply:
        return Reply(stream_of(frame(1)) if number == 1 else stream_of(frame(2)), "hang")

    async with scripted(script) as server, AsyncClient(server.url, "t") as client:
        events = await take(client, 2, silence_s=0.3)
    assert [event.seq for event in events] == [1, 2]
    assert [seen(request) for request in server.requests] == [0, 1]


@pytest.mark.parametrize(
    "reply",
    [
        problem("503 Service Unavailable", "unavailable", "log.away"),
        problem("504 Gateway Timeout", "deadline", "log.slow"),
        problem("429 Too Many Requests", "exhausted", "followers.too_many"),
        answer(b"<html>", "502 Bad Gateway", "text/html"),
        b"",
        b"\0\0\0\0",
    ],
)
async def test_what_may_heal_is_waited_out(reply: bytes) -> None:
    def script(number: int, _request: Request) -> Reply:
        return Reply(reply) if number < 3 else Reply(stream_of(frame(1)), "hang")

    async with scripted(script) as server, AsyncClient(server.url, "t") as client:
        assert [event.seq for event in await take(client, 1)] == [1]
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (problem("401 Unauthorized", "unauthenticated", "token.unknown"), UnauthenticatedError),
        (problem("403 Forbidden", "denied", "host.refused"), DeniedError),
        (problem("404 Not Found", "not_found", "conversation.not_found"), NotFoundError),
        (problem("421 Misdirected Request", "invalid", "host.unknown"), InvalidError),
        (problem("422 Unprocessable Content", "invalid", "position.malformed"), InvalidError),
        (problem("500 Internal Server Error", "broken", "blob.damaged"), BrokenError),
        (answer(b"{}"), BrokenError),
        (stream_of("data: nonsense\n\n"), BrokenError),
        (stream_of("data: []\n\n"), BrokenError),
        (stream_of('data: {"seq": 1}\n\n'), BrokenError),
    ],
)
async def test_what_cannot_heal_is_raised_at_once(reply: bytes, error: type[OutliveError]) -> None:
    async with scripted(lambda _n, _r: Reply(reply)) as server, AsyncClient(server.url, "t") as client:
        with pytest.raises(error):
            await take(client, 1)
    assert len(server.requests) == 1


async def test_it_gives_up_only_when_told(free_port: int) -> None:
    lost: list[float] = []
    async with AsyncClient(f"http://127.0.0.1:{free_port}", "t") as client:
        started = time.monotonic()
        following = conversation(client).follow(give_up_after_s=1.0, on_lost=lambda _error, wait_s: lost.append(wait_s))
        with pytest.raises(UnavailableError):
            await following.next_event()
        assert time.monotonic() - started < 15.0
        assert lost
        assert all(0.1 <= wait_s <= 5.0 for wait_s in lost)
        with anyio.move_on_after(1.5) as scope:
            await conversation(client).follow().next_event()
        assert scope.cancelled_caught


async def test_a_follower_that_was_cancelled_goes_on_where_it_was() -> None:
    def script(_number: int, request: Request) -> Reply:
        return Reply(stream_of(frame(seen(request) + 1)), "hang")

    async with scripted(script) as server, AsyncClient(server.url, "t") as client:
        following = conversation(client).follow()
        assert (await following.next_event()).seq == 1
        with anyio.move_on_after(0.1):
            await following.next_event()
        assert following.position == "p1"
        assert (await following.next_event()).seq == 2
    assert [seen(request) for request in server.requests] == [0, 1]


async def test_deltas_that_are_not_wanted_are_not_asked_for() -> None:
    reply = Reply(stream_of(frame(1)), "hang")
    async with scripted(lambda _n, _r: reply) as server, AsyncClient(server.url, "t") as client:
        await conversation(client).follow("p0", deltas=False).next_event()
    assert server.requests[0].path == f"/v1/conversations/{CONVERSATION}/stream?deltas=false"
    assert server.requests[0].headers["last-event-id"] == "p0"


async def test_leaving_the_loop_lets_go_of_the_connection() -> None:
    reply = Reply(stream_of(frame(1)), "hang")
    async with scripted(lambda _n, _r: reply) as server, AsyncClient(server.url, "t") as client:
        await take(client, 1)
        await eventually(lambda: server.open_connections == 0)
