"""All records of machines in SQLite, opened together."""

from pathlib import Path

from outlive.base import Clock
from outlive.machine.backends.sqlite_checkpoints import SqliteCheckpoints
from outlive.machine.backends.sqlite_effects import SqliteEffects
from outlive.machine.backends.sqlite_environments import SqliteEnvironments
from outlive.machine.backends.sqlite_machines import SqliteMachines
from outlive.machine.backends.sqlite_nodes import SqliteNodes
from outlive.machine.backends.sqlite_terminals import SqliteTerminals
from outlive.machine.records import Records
from outlive.storage.migrate import read_migrations
from outlive.storage.sqlite import SqliteDatabase

MIGRATIONS = read_migrations("machine", Path(__file__).parent / "migrations" / "sqlite")


def sqlite_records(database: SqliteDatabase, clock: Clock) -> Records:
    return Records(
        machines=SqliteMachines(database, clock),
        effects=SqliteEffects(database),
        nodes=SqliteNodes(database, clock),
        checkpoints=SqliteCheckpoints(database),
        environments=SqliteEnvironments(database),
        terminals=SqliteTerminals(database),
    )
