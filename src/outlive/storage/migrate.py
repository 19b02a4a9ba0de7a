"""Ordered, checksummed migrations: how a database gets the tables that the code expects.

Rule 1: a migration is a file `NNNN_name.sql` that never changes once it was released; a mend is a new file.
Rule 2: each is applied once, in one transaction together with its row in `migrations`. Processes that start at the same
        moment wait for each other there.
Rule 3: a database that has what this code does not know is not touched: older code must not write it.

Each part that keeps tables has a namespace and a folder of its own; parts do not know of each other.
"""

import hashlib
import re
import sqlite3
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from outlive.base import BrokenError, Clock, CrashPoint, SystemClock, reach, to_text
from outlive.storage.postgres import Connection, PostgresDatabase
from outlive.storage.sqlite import SqliteDatabase

_SHAPE = re.compile(r"[0-9]{4}_[a-z0-9_]+")
_LOCK = 0x6F75746C  # any number, the same for all: the advisory lock under which PostgreSQL is migrated

_TABLE = """CREATE TABLE IF NOT EXISTS migrations (
    name TEXT PRIMARY KEY,
    checksum TEXT NOT NULL,
    applied_at TEXT NOT NULL
)"""


class Migration(NamedTuple):
    name: str  # namespace/NNNN_name
    sql: str
    checksum: str


class Migrations(NamedTuple):
    """All migrations of one namespace, in order."""

    namespace: str
    items: tuple[Migration, ...]


def read_migrations(namespace: str, folder: Path) -> Migrations:
    """The migrations in `folder`, by number."""
    items = []
    for number, path in enumerate(sorted(folder.glob("*.sql")), start=1):
        if not _SHAPE.fullmatch(path.stem) or int(path.stem[:4]) != number:
            raise BrokenError("migrate.numbering", f"Migration {str(path)!r} should be number {number:04}.")
        sql = path.read_text(encoding="utf-8")
        items.append(Migration(f"{namespace}/{path.stem}", sql, hashlib.sha256(sql.encode()).hexdigest()))
    if not items:
        raise BrokenError("migrate.missing", f"There are no migrations in {str(folder)!r}.")
    return Migrations(namespace, tuple(items))


def _pending(migrations: Migrations, applied: dict[str, str]) -> list[Migration]:
    """What is still to be applied, in order; refuses a history that is not this code's."""
    known = {migration.name: migration for migration in migrations.items}
    for name, checksum in sorted(applied.items()):
        if not name.startswith(f"{migrations.namespace}/"):
            continue
        if name not in known:
            raise BrokenError(
                "migrate.newer",
                f"The database has migration {name!r}, which this version does not know: upgrade Outlive.",
            )
        if known[name].checksum != checksum:
            raise BrokenError(
                "migrate.changed",
                f"Migration {name!r} was applied with other contents than this version has: "
                "restore the file that was released, and put the change into a new migration.",
            )
    return [migration for migration in migrations.items if migration.name not in applied]


def _statements(sql: str) -> Iterator[str]:
    """SQLite takes one statement at a time inside a transaction."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _apply_next_sqlite(connection: sqlite3.Connection, migrations: Migrations, now: str) -> str | None:
    connection.execute(_TABLE)
    pending = _pending(migrations, dict(connection.execute("SELECT name, checksum FROM migrations")))
    if not pending:
        return None
    migration = pending[0]
    for statement in _statements(migration.sql):
        connection.execute(statement)
    row = (migration.name, migration.checksum, now)
    connection.execute("INSERT INTO migrations (name, checksum, applied_at) VALUES (?, ?, ?)", row)
    reach(CrashPoint.MIGRATE_BEFORE_COMMIT)
    return migration.name


async def migrate_sqlite(
    database: SqliteDatabase, migrations: Iterable[Migrations], clock: Clock | None = None
) -> list[str]:
    """Bring the database up to date; returns the names of what was applied just now."""
    clock = clock or SystemClock()
    done: list[str] = []
    for of_part in migrations:
        step = partial(_apply_next_sqlite, migrations=of_part, now=to_text(clock.now()))
        while (name := await database.write(step)) is not None:
            done.append(name)
    return done


async def _apply_next_postgres(connection: Connection, migrations: Migrations, now: str) -> str | None:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    await connection.execute(_TABLE)
    rows = await connection.fetch("SELECT name, checksum FROM migrations")
    pending = _pending(migrations, {row["name"]: row["checksum"] for row in rows})
    if not pending:
        return None
    migration = pending[0]
    await connection.execute(migration.sql)
    row = (migration.name, migration.checksum, now)
    await connection.execute("INSERT INTO migrations (name, checksum, applied_at) VALUES ($1, $2, $3)", *row)
    reach(CrashPoint.MIGRATE_BEFORE_COMMIT)
    return migration.name


async def migrate_postgres(
    database: PostgresDatabase, migrations: Iterable[Migrations], clock: Clock | None = None
) -> list[str]:
    """Bring the database up to date; returns the names of what was applied just now."""
    clock = clock or SystemClock()
    done: list[str] = []
    for of_part in migrations:
        step = partial(_apply_next_postgres, migrations=of_part, now=to_text(clock.now()))
        while (name := await database.write(step)) is not None:
            done.append(name)
    return done
