"""The conversation layer put together on real backends, for tests that need all of it in one process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from outlive.base import SystemClock
from outlive.conversation.backends.broker import open_broker
from outlive.conversation.backends.local_feed import open_local_feed
from outlive.conversation.backends.object_blobs import ObjectBlobs
from outlive.conversation.backends.postgres_catalog import PostgresCatalog
from outlive.conversation.backends.postgres_log import MIGRATIONS as POSTGRES_MIGRATIONS
from outlive.conversation.backends.postgres_log import open_postgres_log
from outlive.conversation.backends.redis_feed import open_redis_feed
from outlive.conversation.backends.sqlite_catalog import SqliteCatalog
from outlive.conversation.backends.sqlite_log import MIGRATIONS as SQLITE_MIGRATIONS
from outlive.conversation.backends.sqlite_log import open_sqlite_log
from outlive.conversation.conversations import Conversations
from outlive.conversation.feed import Feed
from outlive.conversation.log import EventLog
from outlive.storage import migrate_postgres, migrate_sqlite, open_postgres, open_sqlite
from outlive.storage.objects import open_objects


@dataclass(frozen=True)
class Room:
    conversations: Conversations
    log: EventLog
    feed: Feed


@asynccontextmanager
async def open_embedded_room(home: Path, *, broker: bool = True) -> AsyncIterator[Room]:
    """SQLite, the local feed and the local disk under `home`; with its own broker unless another one runs it."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_sqlite(home / "outlive.db"))
        await migrate_sqlite(database, [SQLITE_MIGRATIONS])
        log = await stack.enter_async_context(open_sqlite_log(database))
        if broker:
            await stack.enter_async_context(open_broker(home / "run" / "feed.sock"))
        feed = await stack.enter_async_context(open_local_feed(home / "run" / "feed.sock", log.heads))
        objects = open_objects(str(home / "objects"))
        yield Room(Conversations(log, SqliteCatalog(database), ObjectBlobs(objects), feed, SystemClock()), log, feed)


@asynccontextmanager
async def open_scaled_room(home: Path, *, postgres: str, redis: str) -> AsyncIterator[Room]:
    """PostgreSQL and Redis; objects on the local disk (S3 has its own contract tests)."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_postgres(postgres))
        await migrate_postgres(database, [POSTGRES_MIGRATIONS])
        log = await stack.enter_async_context(open_postgres_log(database))
        feed = await stack.enter_async_context(open_redis_feed(redis, log.heads))
        objects = open_objects(str(home / "objects"))
        yield Room(Conversations(log, PostgresCatalog(database), ObjectBlobs(objects), feed, SystemClock()), log, feed)
