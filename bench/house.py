"""The conversation layer put together in this process, by the same wiring as the real processes."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.rows import ACTOR
from outlive.base import ConversationId, SystemClock, new_operation_id
from outlive.conversation.backends.broker import open_broker
from outlive.conversation.backends.local_feed import open_local_feed
from outlive.conversation.backends.object_blobs import ObjectBlobs
from outlive.conversation.backends.redis_feed import open_redis_feed
from outlive.conversation.conversations import Conversations
from outlive.conversation.hub import FeedHub
from outlive.conversation.log import EventLog
from outlive.wiring.build import open_object_store, open_stores
from outlive.wiring.settings import Settings, prepare_home, read_settings


@dataclass
class House:
    settings: Settings
    log: EventLog
    feed: FeedHub
    conversations: Conversations

    @property
    def database_path(self) -> Path:
        path = self.settings.sqlite_path
        assert path is not None
        return path

    async def make_conversation(self) -> ConversationId:
        return (await self.conversations.create(new_operation_id(), actor=ACTOR, title="Bench")).id


def forget_environment() -> None:
    """What is set for a stack of this user must not reach the ones measured here."""
    for name in [name for name in os.environ if name.upper().startswith("OUTLIVE_")]:
        del os.environ[name]


def settings_of(home: Path, *, database: str | None = None, feed: str | None = None) -> Settings:
    return read_settings({"home": home, "database": {"url": database}, "feed": {"url": feed}})


@asynccontextmanager
async def open_house(settings: Settings, *, with_broker: bool = True) -> AsyncIterator[House]:
    """Everything. `with_broker`: the broker of the local feed too; leave it out where an API runs one."""
    prepare_home(settings)
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings, clock))
        if not settings.has_local_feed:
            feed = await stack.enter_async_context(
                open_redis_feed(settings.feed.url.get_secret_value(), stores.log.heads)
            )
        else:
            if with_broker:
                await stack.enter_async_context(open_broker(settings.feed_socket_path))
            feed = await stack.enter_async_context(open_local_feed(settings.feed_socket_path, stores.log.heads))
        blobs = ObjectBlobs(await open_object_store(settings))
        yield House(settings, stores.log, feed, Conversations(stores.log, stores.catalog, blobs, feed, clock))
