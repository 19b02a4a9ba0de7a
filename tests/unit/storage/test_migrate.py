"""Migrations: each once, in order, whole, and never onto a database of another history."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from outlive.base import BrokenError, CrashPoint
from outlive.storage import Migrations, SqliteDatabase, migrate_sqlite, open_sqlite, read_migrations

pytestmark = pytest.mark.anyio

FIRST = """
-- a comment; with a semicolon
CREATE TABLE things (name TEXT DEFAULT 'a;b');
CREATE TRIGGER twice AFTER INSERT ON things WHEN new.name = 'x' BEGIN
    INSERT INTO things VALUES ('y');
    INSERT INTO things VALUES ('z');
END;
"""
SECOND = "INSERT INTO things VALUES ('x')"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    async with open_sqlite(tmp_path / "test.db") as database:
        yield database


def folder(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    for old in path.glob("*.sql"):
        old.unlink()
    for name, sql in files.items():
        (path / f"{name.removeprefix('n')}.sql").write_text(sql)
    return path


def parts(path: Path, namespace: str = "part", **files: str) -> Migrations:
    return read_migrations(namespace, folder(path / namespace, **files))


async def things(database: SqliteDatabase) -> list[str]:
    def select(connection: sqlite3.Connection) -> list[str]:
        return [name for (name,) in connection.execute("SELECT name FROM things ORDER BY name")]

    return await database.read(select)


async def test_each_is_applied_once_and_in_order(database: SqliteDatabase, tmp_path: Path) -> None:
    assert await migrate_sqlite(database, [parts(tmp_path, n0001_first=FIRST)]) == ["part/0001_first"]
    both = parts(tmp_path, n0001_first=FIRST, n0002_second=SECOND)
    assert await migrate_sqlite(database, [both]) == ["part/0002_second"]
    assert await migrate_sqlite(database, [both]) == []
    assert await things(database) == ["x", "y", "z"]


async def test_one_that_fails_leaves_nothing_of_itself(database: SqliteDatabase, tmp_path: Path) -> None:
    broken = "INSERT INTO things VALUES ('lost');\nINSERT INTO nowhere VALUES (1);"
    with pytest.raises(BrokenError):
        await migrate_sqlite(database, [parts(tmp_path, n0001_first=FIRST, n0002_broken=broken)])
    assert await things(database) == []
    mended = parts(tmp_path, n0001_first=FIRST, n0002_mended=SECOND)
    assert await migrate_sqlite(database, [mended]) == ["part/0002_mended"]


async def test_one_that_was_changed_afterwards_is_refused(database: SqliteDatabase, tmp_path: Path) -> None:
    await migrate_sqlite(database, [parts(tmp_path, n0001_first=FIRST)])
    with pytest.raises(BrokenError, match="part/0001_first") as refused:
        await migrate_sqlite(database, [parts(tmp_path, n0001_first=FIRST + "-- changed", n0002_second=SECOND)])
    assert refused.value.code == "migrate.changed"
    assert await things(database) == []


async def test_a_database_newer_than_the_code_is_left_alone(database: SqliteDatabase, tmp_path: Path) -> None:
    await migrate_sqlite(database, [parts(tmp_path, n0001_first=FIRST, n0002_second=SECOND)])
    with pytest.raises(BrokenError, match="upgrade Outlive") as refused:
        await migrate_sqlite(database, [parts(tmp_path, n0001_first=FIRST)])
    assert refused.value.code == "migrate.newer"


async def test_parts_do_not_know_of_each_other(database: SqliteDatabase, tmp_path: Path) -> None:
    mine = parts(tmp_path, "mine", n0001_first=FIRST)
    other = parts(tmp_path, "mine_too", n0001_first="CREATE TABLE others (n INTEGER)")
    assert await migrate_sqlite(database, [mine, other]) == ["mine/0001_first", "mine_too/0001_first"]
    assert await migrate_sqlite(database, [mine]) == []
    assert await migrate_sqlite(database, [other]) == []


async def test_those_who_start_at_once_apply_each_once(tmp_path: Path) -> None:
    migrations = parts(tmp_path, n0001_first=FIRST, n0002_second=SECOND)
    done: list[str] = []

    async def start() -> None:
        async with open_sqlite(tmp_path / "test.db", busy_timeout_s=20) as database:
            done.extend(await migrate_sqlite(database, [migrations]))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(start)
    assert sorted(done) == ["part/0001_first", "part/0002_second"]  # who told first is a matter of chance


async def test_a_process_killed_before_the_commit_leaves_nothing_and_the_next_goes_on(tmp_path: Path) -> None:
    migrations = parts(tmp_path, n0001_first=FIRST, n0002_second=SECOND)
    program = """
import sys, anyio, pathlib
from outlive.storage import migrate_sqlite, open_sqlite, read_migrations
async def main():
    async with open_sqlite(pathlib.Path(sys.argv[1])) as database:
        await migrate_sqlite(database, [read_migrations("part", pathlib.Path(sys.argv[2]))])
anyio.run(main)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "test.db"), str(tmp_path / "part")]
    environment = os.environ | {"OUTLIVE_CRASH_AT": f"{CrashPoint.MIGRATE_BEFORE_COMMIT}:2"}
    killed = await anyio.run_process(command, env=environment, check=False, stderr=subprocess.DEVNULL)
    assert killed.returncode == -9
    async with open_sqlite(tmp_path / "test.db") as database:
        assert await things(database) == []
        assert await migrate_sqlite(database, [migrations]) == ["part/0002_second"]
        assert await things(database) == ["x", "y", "z"]


@pytest.mark.parametrize(
    "files", [{"n0002_second": SECOND}, {"n0001_first": FIRST, "n0003_third": SECOND}, {"n1_first": FIRST}, {}]
)
def test_a_folder_with_a_gap_or_a_wrong_name_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(BrokenError):
        parts(tmp_path, **files)
