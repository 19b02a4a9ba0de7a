"""Connections, transactions and migrations. Speaks SQL and bytes; knows no word of the layers above."""

from outlive.storage.migrate import Migrations, migrate_postgres, migrate_sqlite, read_migrations
from outlive.storage.postgres import PostgresDatabase, open_postgres
from outlive.storage.sqlite import SqliteDatabase, open_sqlite

__all__ = [
    "Migrations",
    "PostgresDatabase",
    "SqliteDatabase",
    "migrate_postgres",
    "migrate_sqlite",
    "open_postgres",
    "open_sqlite",
    "read_migrations",
]
