"""A SQLite file: whole transactions, whatever becomes of their callers, and no vendor's exception."""

import os
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from outlive.base import (
    BrokenError,
    DeadlineError,
    ExhaustedError,
    InvalidError,
    OutliveError,
    UnavailableError,
)
from outlive.storage import SqliteDatabase, open_sqlite, sqlite
from services.sqlite import SqlitePlace

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    async with open_sqlite(tmp_path / "test.db", readers=2) as database:
        await database.write(lambda connection: connection.execute("CREATE TABLE numbers (n INTEGER)"))
        yield database


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY n")]


def insert(*values: int) -> sqlite.Work[None]:
    def work(connection: sqlite3.Connection) -> None:
        connection.executemany("INSERT INTO numbers VALUES (?)", [(value,) for value in values])

    return work


async def test_a_write_is_there_for_every_reader(database: SqliteDatabase) -> None:
    await database.write(insert(1, 2))
    for _ in range(4):
        assert await database.read(numbers) == [1, 2]


async def test_a_write_that_fails_leaves_nothing_and_its_error_reaches_the_caller(database: SqliteDatabase) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        insert(1)(connection)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await database.write(fail)
    with pytest.raises(BrokenError):
        await database.write(lambda connection: connection.execute("INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(InvalidError):
        await database.write(lambda connection: connection.execute("SELECT ?", ("\ud800",)))
    await database.write(insert(2))
    assert await database.read(numbers) == [2]


async def test_a_reader_cannot_write(database: SqliteDatabase) -> None:
    with pytest.raises(OutliveError):
        await database.read(insert(1))
    assert await database.read(numbers) == []


async def test_every_commit_is_synced(database: SqliteDatabase) -> None:
    def pragmas(connection: sqlite3.Connection) -> tuple[str, int]:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        return mode, connection.execute("PRAGMA synchronous").fetchone()[0]

    full = 2
    assert await database.read(pragmas) == ("wal", full)
    assert await database.write(pragmas) == ("wal", full)


async def test_a_cancelled_caller_leaves_the_whole_transaction_or_none(database: SqliteDatabase) -> None:
    for number in range(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database.write, insert(number, number))
            for _ in range(number % 4):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    await database.write(insert(100, 100))
    left = await database.read(numbers)
    assert all(left.count(number) == 2 for number in left)
    assert 100 in left


async def test_what_a_statement_returns_troubles_none_that_come_after_it(database: SqliteDatabase) -> None:
    """A cursor that is let go here, while its thread runs the same statement for another, would take that one back."""
    statement, refused = "INSERT INTO numbers VALUES (?)", []

    async def write(number: int) -> None:
        try:
            ended = await database.write(lambda connection: connection.executemany(statement, [(number,)] * 3))
        except BrokenError as error:
            refused.append(error)
        else:
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                ended.fetchone()

    for start in range(0, 400, 20):
        async with anyio.create_task_group() as tasks:
            for number in range(start, start + 20):
                tasks.start_soon(write, number)
    assert refused == []
    assert await database.read(numbers) == [number for number in range(400) for _ in range(3)]


async def test_reading_goes_on_while_somebody_writes(database: SqliteDatabase) -> None:
    is_reading_done = threading.Event()

    def slow(connection: sqlite3.Connection) -> bool:
        insert(1)(connection)
        return is_reading_done.wait(10)

    async with anyio.create_task_group() as tasks:

        async def write() -> None:
            assert await database.write(slow)

        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        assert await database.read(numbers) == []
        is_reading_done.set()
    assert await database.read(numbers) == [1]


async def test_a_full_database_is_exhausted_and_takes_nothing_of_the_transaction(database: SqliteDatabase) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count=20").fetchone()
        insert(1)(connection)
        connection.execute("CREATE TABLE big AS SELECT zeroblob(1000000)")

    with pytest.raises(ExhaustedError):
        await database.write(fill)
    await database.write(insert(2))
    assert await database.read(numbers) == [2]


async def test_a_file_that_is_no_database_is_broken(tmp_path: Path) -> None:
    (tmp_path / "test.db").write_bytes(b"not a database at all " * 1000)
    with pytest.raises(BrokenError) as refused:
        async with open_sqlite(tmp_path / "test.db"):
            pytest.fail("it opened")
    assert refused.value.code == "storage.damaged"


async def test_a_damaged_database_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    async with open_sqlite(path) as database:
        await database.write(lambda connection: connection.execute("CREATE TABLE numbers (n INTEGER)"))
        await database.write(insert(*range(5_000)))
    content = bytearray(path.read_bytes())
    content[4096 : len(content)] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    async with open_sqlite(path) as database:
        with pytest.raises(BrokenError) as refused:
            await database.read(numbers)
    assert refused.value.code == "storage.damaged"


async def test_a_file_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        async with open_sqlite(tmp_path / "missing" / "test.db"):
            pytest.fail("it opened")


async def test_a_lock_of_another_process_is_unavailable_and_passes(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "test.db", busy_timeout_s=0.1) as database:
        await database.write(lambda connection: connection.execute("CREATE TABLE numbers (n INTEGER)"))
        async with SqlitePlace(database.path).away():
            with pytest.raises(UnavailableError) as refused:
                await database.write(insert(1))
            assert refused.value.code == "storage.locked"
            assert await database.read(numbers) == []
        await database.write(insert(1))


async def test_too_many_waiting_calls_are_refused(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "WAITING_LIMIT", 2)
    gate = threading.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(database.write, lambda connection: gate.wait(10))
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ExhaustedError):
            await database.write(insert(1))
        gate.set()
    await database.write(insert(2))
    assert await database.read(numbers) == [2]


async def test_a_write_that_hangs_is_given_up(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    with monkeypatch.context() as short:
        short.setattr(sqlite, "DEADLINE_S", 0.05)
        with pytest.raises(DeadlineError):
            await database.write(lambda connection: gate.wait(10))
    gate.set()
    await database.write(insert(1))
    assert await database.read(numbers) == [1]


async def test_the_journal_does_not_stay_big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "JOURNAL_LIMIT", 100_000)
    journal = tmp_path / "test.db-wal"
    async with open_sqlite(tmp_path / "test.db") as database:
        await database.write(lambda connection: connection.execute("CREATE TABLE big AS SELECT randomblob(8000000)"))
        assert journal.stat().st_size > 8_000_000
        await database.write(lambda connection: connection.execute("CREATE TABLE numbers (n INTEGER)"))
        await database.write(insert(1))
        assert journal.stat().st_size <= 100_000


async def test_opening_and_closing_leaves_no_thread_and_no_file_open(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "test.db"):
        pass  # what is made once (such as the pool that joins threads) is made now
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        async with open_sqlite(tmp_path / "test.db") as database:
            await database.write(lambda connection: None)
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) <= (threads, files)
    with pytest.raises(UnavailableError):
        await database.write(lambda connection: None)


async def test_processes_that_find_no_file_make_it_together(tmp_path: Path) -> None:
    program = """
import sys, anyio, pathlib
from outlive.storage import open_sqlite
async def main():
    async with open_sqlite(pathlib.Path(sys.argv[1])) as database:
        await database.write(lambda connection: connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER)"))
        await database.write(lambda connection: connection.execute("INSERT INTO t VALUES (1)"))
anyio.run(main)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "test.db")]
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(anyio.run_process, command)
    async with open_sqlite(tmp_path / "test.db") as database:
        assert await database.read(lambda connection: connection.execute("SELECT sum(n) FROM t").fetchone()) == (4,)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, "unavailable"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "unavailable"),
        (sqlite3.SQLITE_LOCKED, "unavailable"),
        (sqlite3.SQLITE_IOERR_FSYNC, "unavailable"),
        (sqlite3.SQLITE_CANTOPEN, "unavailable"),
        (sqlite3.SQLITE_READONLY, "unavailable"),
        (sqlite3.SQLITE_FULL, "exhausted"),
        (sqlite3.SQLITE_TOOBIG, "exhausted"),
        (sqlite3.SQLITE_CORRUPT, "broken"),
        (sqlite3.SQLITE_NOTADB, "broken"),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, "broken"),
        (sqlite3.SQLITE_ERROR, "broken"),
        (None, "broken"),
    ],
)
def test_every_error_has_a_kind(code: int | None, kind: str) -> None:
    error = sqlite3.OperationalError("what happened")
    with suppress(AttributeError):
        if code is not None:
            error.sqlite_errorcode = code
    assert sqlite.to_outlive_error(error).kind == kind
