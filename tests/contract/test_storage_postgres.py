"""A PostgreSQL database: durable, bounded, and no vendor's exception."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import asyncpg
import pytest

from outlive.base import BrokenError, DeadlineError, InvalidError, UnavailableError
from outlive.storage import PostgresDatabase, migrate_postgres, open_postgres, read_migrations
from outlive.storage.postgres import RACES_LIMIT, Connection, to_outlive_error
from services.postgres import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(postgres_dsn: str) -> AsyncIterator[PostgresDatabase]:
    async with open_postgres(postgres_dsn) as database:
        await database.run(lambda connection: connection.execute("CREATE TABLE numbers (n int)"))
        yield database


async def numbers(database: PostgresDatabase) -> list[int]:
    rows = await database.run(lambda connection: connection.fetch("SELECT n FROM numbers ORDER BY n"))
    return [row["n"] for row in rows]


async def test_every_commit_is_durable_whatever_the_server_says(
    database: PostgresDatabase, postgres_server: PostgresServer
) -> None:
    assert postgres_server.psql("SHOW synchronous_commit") == "off\n"
    assert await database.run(lambda connection: connection.fetchval("SHOW synchronous_commit")) == "on"


async def test_a_write_that_fails_leaves_nothing(database: PostgresDatabase) -> None:
    async def fail(connection: Connection) -> None:
        await connection.execute("INSERT INTO numbers VALUES (1)")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await database.write(fail)
    with pytest.raises(BrokenError):
        await database.write(lambda connection: connection.execute("INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(InvalidError):
        await database.write(lambda connection: connection.fetchval("SELECT $1::text", "a\x00"))
    assert await numbers(database) == []


async def test_a_transaction_that_loses_a_race_is_run_again_within_a_bound(database: PostgresDatabase) -> None:
    runs = 0

    async def lose(connection: Connection, times: int) -> None:
        nonlocal runs
        runs += 1
        await connection.execute("INSERT INTO numbers VALUES ($1)", runs)
        if runs <= times:
            await connection.execute("DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$")

    await database.write(lambda connection: lose(connection, 2))
    assert await numbers(database) == [3]
    runs = 0
    with pytest.raises(UnavailableError) as refused:
        await database.write(lambda connection: lose(connection, 100))
    assert refused.value.code == "storage.race"
    assert runs == RACES_LIMIT


async def test_a_real_deadlock_is_resolved(database: PostgresDatabase) -> None:
    await database.run(lambda connection: connection.execute("INSERT INTO numbers VALUES (1), (2)"))
    met = [anyio.Event(), anyio.Event()]

    async def add(connection: Connection, mine: int) -> None:
        for position, n in enumerate((mine, 3 - mine)):
            await connection.execute("UPDATE numbers SET n = n + 10 WHERE n % 10 = $1", n)
            if position == 0:
                met[mine - 1].set()
                await met[2 - mine].wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(database.write, lambda connection: add(connection, 1))
        tasks.start_soon(database.write, lambda connection: add(connection, 2))
    assert await numbers(database) == [21, 22]


async def test_a_command_that_takes_too_long_is_given_up(postgres_dsn: str) -> None:
    async with open_postgres(postgres_dsn, command_timeout_s=2.0) as database:
        with pytest.raises(DeadlineError):
            await database.run(lambda connection: connection.execute("SELECT pg_sleep(30)"))
        assert await database.run(lambda connection: connection.fetchval("SELECT 1")) == 1


async def test_callers_share_a_bounded_pool(postgres_dsn: str) -> None:
    async with open_postgres(postgres_dsn, pool_size=2) as database:
        most = 0

        async def count(connection: Connection) -> None:
            nonlocal most
            sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            most = max(most, await connection.fetchval(sql))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(database.write, count)
        assert most == 2


async def test_a_cancelled_caller_gives_its_connection_back_clean(postgres_dsn: str) -> None:
    async with open_postgres(postgres_dsn, pool_size=1) as database:
        await database.run(lambda connection: connection.execute("CREATE TABLE numbers (n int)"))

        async def hang(connection: Connection) -> None:
            await connection.execute("INSERT INTO numbers VALUES (1)")
            await connection.execute("SELECT pg_sleep(30)")

        with anyio.move_on_after(0.1):
            await database.write(hang)
        assert await numbers(database) == []


async def test_a_server_that_went_away_is_unavailable_and_is_found_again(
    database: PostgresDatabase, postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    await anyio.to_thread.run_sync(postgres_server.stop)
    try:
        for _ in range(3):
            with pytest.raises(UnavailableError):
                await numbers(database)
        with pytest.raises(UnavailableError):
            async with open_postgres(postgres_dsn):
                pytest.fail("it opened")
    finally:
        await anyio.to_thread.run_sync(postgres_server.start)
    assert await numbers(database) == []


async def test_connections_cut_by_the_server_are_replaced(
    database: PostgresDatabase, postgres_server: PostgresServer
) -> None:
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'outlive'"
    await anyio.to_thread.run_sync(postgres_server.psql, cut)
    try:
        await numbers(database)
    except UnavailableError:
        assert await numbers(database) == []


async def test_wrong_settings_are_told_from_a_server_that_is_away(postgres_dsn: str) -> None:
    user, _, rest = postgres_dsn.rpartition("@")
    for dsn, code in (
        (f"{user}wrong@{rest}", "storage.credentials"),
        (postgres_dsn.rpartition("/")[0] + "/nowhere", "storage.missing"),
    ):
        with pytest.raises(BrokenError) as refused:
            async with open_postgres(dsn):
                pytest.fail("it opened")
        assert refused.value.code == code


async def test_those_who_start_at_once_apply_each_migration_once(postgres_dsn: str, tmp_path: Path) -> None:
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE things (n int); CREATE TABLE others (n int);")
    (tmp_path / "0002_second.sql").write_text("INSERT INTO things VALUES (1)")
    done: list[str] = []

    async def start() -> None:
        async with open_postgres(postgres_dsn, pool_size=1) as database:
            done.extend(await migrate_postgres(database, [read_migrations("part", tmp_path)]))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(start)
    assert sorted(done) == ["part/0001_first", "part/0002_second"]  # one may have applied the first, another the second
    (tmp_path / "0003_broken.sql").write_text("INSERT INTO things VALUES (2); INSERT INTO nowhere VALUES (1);")
    async with open_postgres(postgres_dsn) as database:
        with pytest.raises(BrokenError):
            await migrate_postgres(database, [read_migrations("part", tmp_path)])
        assert await database.run(lambda connection: connection.fetchval("SELECT count(*) FROM things")) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.SerializationError("x"), "unavailable"),
        (asyncpg.DeadlockDetectedError("x"), "unavailable"),
        (asyncpg.TooManyConnectionsError("x"), "unavailable"),
        (asyncpg.AdminShutdownError("x"), "unavailable"),
        (asyncpg.CannotConnectNowError("x"), "unavailable"),
        (asyncpg.ConnectionDoesNotExistError("x"), "unavailable"),
        (asyncpg.InterfaceError("x"), "unavailable"),
        (asyncpg.ReadOnlySQLTransactionError("x"), "unavailable"),
        (ConnectionRefusedError("x"), "unavailable"),
        (asyncpg.QueryCanceledError("x"), "deadline"),
        (TimeoutError("x"), "deadline"),
        (asyncpg.DiskFullError("x"), "exhausted"),
        (asyncpg.OutOfMemoryError("x"), "exhausted"),
        (asyncpg.DataCorruptedError("x"), "broken"),
        (asyncpg.InvalidPasswordError("x"), "broken"),
        (asyncpg.UniqueViolationError("x"), "broken"),
        (asyncpg.UndefinedTableError("x"), "broken"),
        (asyncpg.CharacterNotInRepertoireError("x"), "invalid"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_every_error_has_a_kind(error: Exception, kind: str) -> None:
    assert to_outlive_error(error).kind == kind
