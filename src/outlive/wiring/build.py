"""From settings to ports: the only place that names concrete backends.

`open_parts` is what an API process is made of; `open_conversations` what any other process needs that writes or follows
conversations. Both bring the database up to date first. Backends are imported when they are chosen.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NamedTuple

import anyio
import anyio.abc
import anyio.to_thread

from outlive.base import Clock, ConflictError, OutliveError, SystemClock
from outlive.conversation.approvals import ApprovalIndex, Approvals
from outlive.conversation.artifacts import Artifacts
from outlive.conversation.backends.object_artifacts import ObjectArtifacts
from outlive.conversation.backends.object_blobs import ObjectBlobs
from outlive.conversation.conversations import Conversations
from outlive.conversation.feed import Feed
from outlive.conversation.log import Catalog, EventLog
from outlive.governance import CachedPrincipals, Idempotency, IdempotencyKeys, Principals, open_idempotency
from outlive.loop.agents import AgentRecords, AgentRegistry
from outlive.loop.tools.own.offers import ToolOffers
from outlive.machine.egress_log import EgressRecords
from outlive.machine.records import CheckpointRecords, Effects, EnvironmentRecords, MachineRecords, Nodes, Records
from outlive.machine.terminal.records import TerminalRecords
from outlive.storage.migrate import Migrations, migrate_postgres, migrate_sqlite
from outlive.storage.objects import ObjectStore, open_objects
from outlive.wiring.providers import model_of_default
from outlive.wiring.settings import Settings, prepare_home

_CHECK_WITHIN_S = 2.0
_CHECK_EVERY_S = 1.0  # an answer about readiness is good for this long: asking often costs nothing behind us
_BROKER_RETRY_S = 0.5

Check = Callable[[], Awaitable[None]]


class Stores(NamedTuple):
    """Everything that one SQL database holds. `check` raises if it is away."""

    log: EventLog
    catalog: Catalog
    principals: Principals
    keys: IdempotencyKeys
    machines: MachineRecords
    effects: Effects
    nodes: Nodes
    checkpoints: CheckpointRecords
    environments: EnvironmentRecords
    terminals: TerminalRecords
    egress: EgressRecords
    agents: AgentRecords
    offers: ToolOffers
    approvals: ApprovalIndex
    check: Check


class Parts(NamedTuple):
    """What an API is made of. All of it ends with the context that it came from."""

    conversations: Conversations
    catalog: Catalog
    artifacts: Artifacts
    principals: Principals
    idempotency: Idempotency
    machines: MachineRecords
    effects: Effects
    nodes: Nodes
    checkpoints: CheckpointRecords
    environments: EnvironmentRecords
    terminals: TerminalRecords
    egress: EgressRecords
    agents: AgentRegistry
    offers: ToolOffers
    approvals: Approvals
    clock: Clock
    readiness: Callable[[], Awaitable[Mapping[str, bool]]]


def machine_records(of: Stores | Parts) -> Records:
    return Records(of.machines, of.effects, of.nodes, of.checkpoints, of.environments, of.terminals)


@asynccontextmanager
async def open_parts(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Parts]:
    clock = clock or SystemClock()
    prepare_home(settings)
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings, clock))
        objects = await open_object_store(settings)
        feed = await stack.enter_async_context(_open_feed(settings, stores.log))
        conversations = Conversations(stores.log, stores.catalog, ObjectBlobs(objects), feed, clock)
        yield Parts(
            conversations=conversations,
            catalog=stores.catalog,
            artifacts=ObjectArtifacts(objects),
            principals=CachedPrincipals(stores.principals, clock),
            idempotency=await stack.enter_async_context(open_idempotency(stores.keys)),
            machines=stores.machines,
            effects=stores.effects,
            nodes=stores.nodes,
            checkpoints=stores.checkpoints,
            environments=stores.environments,
            terminals=stores.terminals,
            egress=stores.egress,
            agents=AgentRegistry(stores.agents, model_of_default(settings), clock, offers=stores.offers),
            offers=stores.offers,
            approvals=Approvals(conversations, stores.approvals, clock),
            clock=clock,
            # Not the feed: without it everything still works, only later.
            readiness=Readiness({"database": stores.check, "objects": objects.check}, clock),
        )


@asynccontextmanager
async def open_conversations(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Conversations]:
    async with open_parts(settings, clock) as parts:
        yield parts.conversations


# ── databases ──


def open_stores(settings: Settings, clock: Clock) -> AbstractAsyncContextManager[Stores]:
    """The database of the settings, brought up to date."""
    return _open_sqlite_stores(settings, clock) if settings.sqlite_path else _open_postgres_stores(settings, clock)


def migrations_of(settings: Settings) -> tuple[Migrations, ...]:
    """Every migration of the database of the settings, part by part."""
    if settings.sqlite_path:
        from outlive.conversation.backends import sqlite_log
        from outlive.governance.backends.sqlite import sqlite_migrations
        from outlive.loop.backends import sqlite_agents
        from outlive.machine.backends import sqlite_records

        return sqlite_log.MIGRATIONS, sqlite_migrations(), sqlite_records.MIGRATIONS, sqlite_agents.MIGRATIONS
    from outlive.conversation.backends import postgres_log
    from outlive.governance.backends.postgres import postgres_migrations
    from outlive.loop.backends import postgres_agents
    from outlive.machine.backends import postgres_records

    return postgres_log.MIGRATIONS, postgres_migrations(), postgres_records.MIGRATIONS, postgres_agents.MIGRATIONS


@asynccontextmanager
async def _open_sqlite_stores(settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    from outlive.conversation.backends import sqlite_log
    from outlive.conversation.backends.sqlite_approvals import SqliteApprovals
    from outlive.conversation.backends.sqlite_catalog import SqliteCatalog
    from outlive.governance.backends import sqlite as governance
    from outlive.loop.backends import sqlite_agents
    from outlive.loop.backends.sqlite_offers import SqliteOffers
    from outlive.machine.backends.sqlite_egress import SqliteEgress
    from outlive.machine.backends.sqlite_records import sqlite_records
    from outlive.storage.sqlite import open_sqlite

    path = settings.sqlite_path
    assert path is not None
    async with open_sqlite(path) as database:
        await migrate_sqlite(database, migrations_of(settings), clock)

        async def check() -> None:
            await database.read(lambda connection: connection.execute("SELECT 1 FROM migrations LIMIT 1").fetchone())

        async with sqlite_log.open_sqlite_log(database) as log:
            yield Stores(
                log,
                SqliteCatalog(database),
                governance.SqlitePrincipals(database, clock),
                governance.SqliteIdempotencyKeys(database, clock),
                *sqlite_records(database, clock),
                SqliteEgress(database),
                sqlite_agents.SqliteAgents(database),
                SqliteOffers(database),
                SqliteApprovals(database),
                check,
            )


@asynccontextmanager
async def _open_postgres_stores(settings: Settings, clock: Clock) -> AsyncIterator[Stores]:
    from outlive.conversation.backends import postgres_log
    from outlive.conversation.backends.postgres_approvals import PostgresApprovals
    from outlive.conversation.backends.postgres_catalog import PostgresCatalog
    from outlive.governance.backends import postgres as governance
    from outlive.loop.backends import postgres_agents
    from outlive.loop.backends.postgres_offers import PostgresOffers
    from outlive.machine.backends.postgres_egress import PostgresEgress
    from outlive.machine.backends.postgres_records import postgres_records
    from outlive.storage.postgres import open_postgres

    async with open_postgres(settings.database.url.get_secret_value()) as database:
        await migrate_postgres(database, migrations_of(settings), clock)

        async def check() -> None:
            await database.run(lambda connection: connection.fetchval("SELECT 1"))

        async with postgres_log.open_postgres_log(database) as log:
            yield Stores(
                log,
                PostgresCatalog(database),
                governance.PostgresPrincipals(database, clock),
                governance.PostgresIdempotencyKeys(database, clock),
                *postgres_records(database),
                PostgresEgress(database),
                postgres_agents.PostgresAgents(database),
                PostgresOffers(database),
                PostgresApprovals(database),
                check,
            )


# ── objects and feed ──


async def open_object_store(settings: Settings) -> ObjectStore:
    """The object store of the settings, asked once whether it is there."""
    given = settings.objects
    opening = partial(
        open_objects,
        settings.objects_path or given.url.get_secret_value(),
        endpoint=given.endpoint,
        region=given.region,
        access_key_id=given.access_key.get_secret_value() if given.access_key else None,
        secret_access_key=given.secret_key.get_secret_value() if given.secret_key else None,
    )
    objects = await anyio.to_thread.run_sync(opening)
    await objects.check()
    return objects


def _open_feed(settings: Settings, log: EventLog) -> AbstractAsyncContextManager[Feed]:
    if settings.has_local_feed:
        from outlive.conversation.backends.local_feed import open_local_feed

        return open_local_feed(settings.feed_socket_path, log.heads)
    from outlive.conversation.backends.redis_feed import open_redis_feed

    return open_redis_feed(settings.feed.url.get_secret_value(), log.heads)


async def keep_broker(
    settings: Settings, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Run the broker of the local feed for ever. While another process of this home runs it, use that one, and take
    over when it is gone. `started` is called when there is one, ours or not."""
    from outlive.conversation.backends.broker import open_broker

    is_started = False
    while True:
        try:
            async with open_broker(settings.feed_socket_path):
                if not is_started:
                    task_status.started()
                await anyio.sleep_forever()
        except ConflictError:
            if not is_started:
                task_status.started()
                is_started = True
        await anyio.sleep(_BROKER_RETRY_S)


# ── readiness ──


class Readiness:
    """Which parts are there, asked at most once in a while."""

    def __init__(self, checks: Mapping[str, Check], clock: Clock) -> None:
        self._checks = checks
        self._clock = clock
        self._known: dict[str, bool] = {}
        self._known_until = 0.0
        self._lock = anyio.Lock()

    async def __call__(self) -> Mapping[str, bool]:
        async with self._lock:
            if self._clock.monotonic() >= self._known_until:
                async with anyio.create_task_group() as group:
                    for name, check in self._checks.items():
                        group.start_soon(self._ask, name, check)
                self._known_until = self._clock.monotonic() + _CHECK_EVERY_S
            return dict(self._known)

    async def _ask(self, name: str, check: Check) -> None:
        self._known[name] = False
        try:
            with anyio.move_on_after(_CHECK_WITHIN_S):
                await check()
                self._known[name] = True
        except OutliveError:
            pass
