"""The feed over Redis Streams keeps what every feed promises."""

from collections.abc import Iterator
from typing import Literal

import anyio.to_thread
import pytest
from tests.services.redis import RedisService, redis_service

from outlive.testing.feed import FeedContract

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
