"""A call through a network that fails: made again with the same key while that may help, refused at once when not."""

import json
import time
from collections.abc import Callable

import anyio
import anyio.abc
import pytest

from integration.client.scripted import Reply, Request, answer, problem, scripted
from outlive.base import (
    BrokenError,
    ConflictError,
    DeadlineError,
    ExhaustedError,
    InvalidError,
    NotFoundError,
    OutliveError,
    UnauthenticatedError,
    UnavailableError,
)
from outlive.client import AsyncClient

pytestmark = pytest.mark.anyio

CONVERSATION = "conv_" + "0" * 32
MADE = answer(json.dumps({"id": CONVERSATION, "state": "idle", "head": 1}).encode())
CUT = MADE[:-5]


def first(count: int, reply: Reply) -> Callable[[int, Request], Reply]:
    return lambda number, _request: reply if number <= count else Reply(MADE, "keep")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b""),
        Reply(CUT),
        Reply(b"HTTP/1.1 200 OK\r\nContent-Le"),
        Reply(b"\0\1\2 nonsense\r\n\r\n"),
        Reply(problem("503 Service Unavailable", "unavailable", "log.away")),
        Reply(problem("504 Gateway Timeout", "deadline", "log.slow"), "keep"),
        Reply(problem("409 Conflict", "conflict", "idempotency.in_flight", "Retry-After: 0"), "keep"),
        Reply(problem("429 Too Many Requests", "exhausted", "api.busy", "Retry-After: 0"), "keep"),
        Reply(answer(b"<html>bad gateway</html>", "502 Bad Gateway", "text/html")),
    ],
)
async def test_a_post_is_made_again_with_the_same_key_until_it_is_answered(reply: Reply) -> None:
    async with scripted(first(3, reply)) as server, AsyncClient(server.url, "t") as client:
        made = await client.conversations.create(title="once")
    assert made.id == CONVERSATION
    assert len(server.requests) == 4
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert {request.body for request in server.requests} == {b'{"title": "once"}'}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer t"}


async def test_two_posts_have_different_keys() -> None:
    async with scripted(first(0, Reply(b""))) as server, AsyncClient(server.url, "t") as client:
        await client.conversations.create()
        await client.conversations.create()
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 2


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (problem("401 Unauthorized", "unauthenticated", "token.unknown"), UnauthenticatedError),
        (problem("404 Not Found", "not_found", "conversation.not_found"), NotFoundError),
        (problem("409 Conflict", "conflict", "idempotency.key_reused"), ConflictError),
        (problem("413 Content Too Large", "exhausted", "body.too_big"), ExhaustedError),
        (problem("422 Unprocessable Content", "invalid", "body.invalid"), InvalidError),
        (problem("500 Internal Server Error", "broken", "blob.damaged"), BrokenError),
        (answer(b"not json"), BrokenError),
        (answer(b"[]"), BrokenError),
        (answer(b"{}"), BrokenError),
        (answer(b"", "302 Found", "text/html", "Location: http://127.0.0.1:1/"), InvalidError),
    ],
)
async def test_what_cannot_heal_is_raised_at_once(reply: bytes, error: type[OutliveError]) -> None:
    async with scripted(lambda _n, _r: Reply(reply, "keep")) as server, AsyncClient(server.url, "t") as client:
        with pytest.raises(error):
            await client.conversations.create()
    assert len(server.requests) == 1


async def test_retries_end_with_the_deadline_and_the_last_error() -> None:
    reply = Reply(problem("503 Service Unavailable", "unavailable", "log.away"))
    async with scripted(lambda _n, _r: reply) as server, AsyncClient(server.url, "t", deadline_s=2.0) as client:
        started = time.monotonic()
        with pytest.raises(UnavailableError) as caught:
            await client.conversations.create()
    assert caught.value.code == "log.away"
    assert time.monotonic() - started < 15.0
    assert 2 <= len(server.requests) <= 15


async def test_a_server_that_never_answers_ends_in_a_deadline() -> None:
    hang = Reply(b"", "hang")
    async with scripted(lambda _n, _r: hang) as server, AsyncClient(server.url, "t", deadline_s=0.9) as client:
        started = time.monotonic()
        with pytest.raises(DeadlineError):
            await client.conversations.get(CONVERSATION)
        assert time.monotonic() - started < 15.0


async def test_an_answer_that_stops_in_the_middle_ends_in_a_deadline() -> None:
    hang = Reply(CUT, "hang")
    async with scripted(lambda _n, _r: hang) as server, AsyncClient(server.url, "t", deadline_s=0.9) as client:
        with pytest.raises(DeadlineError):
            await client.conversations.get(CONVERSATION)


async def test_a_stalled_attempt_is_given_up_in_time_for_another() -> None:
    async with scripted(first(1, Reply(b"", "hang"))) as server, AsyncClient(server.url, "t", deadline_s=3) as client:
        assert (await client.conversations.create()).id == CONVERSATION
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1


async def test_nobody_listening_is_said_with_what_to_do(free_port: int) -> None:
    async with AsyncClient(f"http://127.0.0.1:{free_port}", "t", patience_s=0.3) as client:
        started = time.monotonic()
        with pytest.raises(UnavailableError, match="outlive up"):
            await client.conversations.list()
        assert time.monotonic() - started < 10.0


async def test_a_server_without_tls_is_not_taken_for_nobody() -> None:
    async def answer_in_the_clear(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer_in_the_clear)
        async with AsyncClient(f"https://127.0.0.1:{port}", "t") as client:
            with pytest.raises(UnavailableError, match="Does it speak HTTPS") as caught:
                await client.conversations.list()
        group.cancel_scope.cancel()
    assert caught.value.code == "api.untrusted"


async def test_the_servers_retry_after_is_honoured() -> None:
    reply = Reply(problem("503 Service Unavailable", "unavailable", "log.away", "Retry-After: 1"))
    async with scripted(first(1, reply)) as server, AsyncClient(server.url, "t") as client:
        started = time.monotonic()
        await client.conversations.create()
        assert time.monotonic() - started >= 1.0


@pytest.mark.parametrize(
    "id", ["", "conv_", "../agents", "conv_" + "0" * 31 + "/", "conv_" + "G" * 32, "turn_" + "0" * 32]
)
async def test_what_is_no_id_never_becomes_part_of_a_path(id: str) -> None:
    async with scripted(first(0, Reply(b""))) as server, AsyncClient(server.url, "t") as client:
        with pytest.raises(NotFoundError):
            await client.conversations.get(id)
    assert server.requests == []
