"""The records of machines in SQLite keep what every store of them promises."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlive.machine.backends.sqlite_egress import SqliteEgress
from outlive.machine.backends.sqlite_records import MIGRATIONS
from outlive.machine.egress_log import EgressRecords
from outlive.storage import migrate_sqlite, open_sqlite
from outlive.testing.checkpoint_records import CheckpointRecordsContract
from outlive.testing.effects import EffectsContract
from outlive.testing.egress_log import EgressRecordsContract
from outlive.testing.environment_records import EnvironmentRecordsContract
from outlive.testing.machines import MachineRecordsContract
from outlive.testing.nodes import NodesContract
from outlive.testing.terminal_records import TerminalRecordsContract
from services.sqlite import SqlitePlace

pytestmark = pytest.mark.anyio


class InSqlite:
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path / "outlive.db")


class TestSqliteMachines(InSqlite, MachineRecordsContract):
    pass


class TestSqliteEffects(InSqlite, EffectsContract):
    pass


class TestSqliteNodes(InSqlite, NodesContract):
    pass


class TestSqliteCheckpoints(InSqlite, CheckpointRecordsContract):
    pass


class TestSqliteEnvironments(InSqlite, EnvironmentRecordsContract):
    pass


class TestSqliteTerminals(InSqlite, TerminalRecordsContract):
    pass


class TestSqliteEgress(EgressRecordsContract):
    @pytest.fixture
    async def egress(self, tmp_path: Path) -> AsyncIterator[EgressRecords]:
        async with open_sqlite(tmp_path / "outlive.db") as database:
            await migrate_sqlite(database, [MIGRATIONS])
            yield SqliteEgress(database)
