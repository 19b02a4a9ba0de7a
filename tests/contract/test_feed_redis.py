"""The feed over Redis Streams keeps what every feed promises."""

from collections.abc import Iterator
from typing import Literal

import anyio.to_thread
import pytest

from outlive.base import InvalidError, new_conversation_id
from outlive.conversation.backends.redis_feed import key_of, open_redis_feed
from outlive.storage.redis import RedisServer, Refused
from outlive.testing.feed import FeedContract, KnownHeads, make_event, open_feed, receive_until
from services.redis import RedisService, redis_service

pytestmark = pytest.mark.anyio


class RedisPlace:
    kind: Literal["local", "redis"] = "redis"

    def __init__(self, service: RedisService) -> None:
        self._service = service
        self.address = service.url

    async def start(self) -> None:
        await anyio.to_thread.run_sync(self._service.start)

    async def kill(self) -> None:
        await anyio.to_thread.run_sync(self._service.kill)


@pytest.fixture
def place() -> Iterator[RedisPlace]:
    with redis_service() as service:
        yield RedisPlace(service)


class TestRedisFeed(FeedContract):
    pass


async def test_a_key_that_refuses_harms_no_other_conversation(place: RedisPlace) -> None:
    bad, good = new_conversation_id(), new_conversation_id()
    async with RedisServer(place.address).connect() as connection:
        assert await connection.call([(b"SET", key_of(bad), b"x")], 5.0) == [b"OK"]
        assert await connection.call([(b"XLEN", key_of(bad)), (b"PING",)], 5.0) == [Refused("WRONGTYPE"), b"PONG"]
    async with open_feed(place) as writer, open_feed(place) as reader, reader.subscribe(good) as subscription:
        for seq in range(1, 4):
            writer.publish(bad, [make_event(seq)])
            writer.publish(good, [make_event(seq)])
            await receive_until(subscription, bool)


async def test_an_entry_that_makes_no_sense_is_left_out(place: RedisPlace) -> None:
    conversation = new_conversation_id()
    async with open_feed(place) as feed, feed.subscribe(conversation) as subscription:
        async with RedisServer(place.address).connect() as connection:
            for body in (b"", b"[[]]", b"\xff", b'[["d"]]'):
                await connection.call([(b"XADD", key_of(conversation), b"*", b"s", body)], 5.0)
        feed.publish(conversation, [make_event(1)])
        assert [type(one).__name__ for one in await receive_until(subscription, bool)] == ["Event"]


async def test_streams_are_bounded_and_expire(place: RedisPlace) -> None:
    conversation = new_conversation_id()
    async with open_feed(place) as feed:
        for seq in range(1, 1001):
            feed.publish(conversation, [make_event(seq, data_json="x" * 20_000)])
            await feed.flush()
    async with RedisServer(place.address).connect() as connection:
        key = key_of(conversation)
        length, expiry_ms = await connection.call([(b"XLEN", key), (b"PTTL", key)], 5.0)
    assert 0 < length < 500  # entries this big: 256, and what the approximate trimming leaves
    assert 3_500_000 < expiry_ms <= 3_600_000


async def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(InvalidError):
        async with open_redis_feed("http://127.0.0.1/", KnownHeads()):
            pass
