"""All records of machines in PostgreSQL, opened together."""

from pathlib import Path

from outlive.machine.backends.postgres_checkpoints import PostgresCheckpoints
from outlive.machine.backends.postgres_effects import PostgresEffects
from outlive.machine.backends.postgres_environments import PostgresEnvironments
from outlive.machine.backends.postgres_machines import PostgresMachines
from outlive.machine.backends.postgres_nodes import PostgresNodes
from outlive.machine.backends.postgres_terminals import PostgresTerminals
from outlive.machine.records import Records
from outlive.storage.migrate import read_migrations
from outlive.storage.postgres import PostgresDatabase

MIGRATIONS = read_migrations("machine", Path(__file__).parent / "migrations" / "postgres")


def postgres_records(database: PostgresDatabase) -> Records:
    return Records(
        machines=PostgresMachines(database),
        effects=PostgresEffects(database),
        nodes=PostgresNodes(database),
        checkpoints=PostgresCheckpoints(database),
        environments=PostgresEnvironments(database),
        terminals=PostgresTerminals(database),
    )
