"""The records of machines in PostgreSQL keep what every store of them promises."""

from collections.abc import AsyncIterator

import pytest

from outlive.machine.backends.postgres_egress import PostgresEgress
from outlive.machine.backends.postgres_records import MIGRATIONS
from outlive.machine.egress_log import EgressRecords
from outlive.storage import migrate_postgres, open_postgres
from outlive.testing.checkpoint_records import CheckpointRecordsContract
from outlive.testing.effects import EffectsContract
from outlive.testing.egress_log import EgressRecordsContract
from outlive.testing.environment_records import EnvironmentRecordsContract
from outlive.testing.machines import MachineRecordsContract
from outlive.testing.nodes import NodesContract
from outlive.testing.terminal_records import TerminalRecordsContract
from services.postgres import PostgresPlace, PostgresServer

pytestmark = pytest.mark.anyio


class InPostgres:
    @pytest.fixture
    def place(self, postgres_server: PostgresServer, postgres_dsn: str) -> PostgresPlace:
        return PostgresPlace(postgres_server, postgres_dsn)


class TestPostgresMachines(InPostgres, MachineRecordsContract):
    pass


class TestPostgresEffects(InPostgres, EffectsContract):
    pass


class TestPostgresNodes(InPostgres, NodesContract):
    pass


class TestPostgresCheckpoints(InPostgres, CheckpointRecordsContract):
    pass


class TestPostgresEnvironments(InPostgres, EnvironmentRecordsContract):
    pass


class TestPostgresTerminals(InPostgres, TerminalRecordsContract):
    pass


class TestPostgresEgress(EgressRecordsContract):
    @pytest.fixture
    async def egress(self, postgres_dsn: str) -> AsyncIterator[EgressRecords]:
        async with open_postgres(postgres_dsn) as database:
            await migrate_postgres(database, [MIGRATIONS])
            yield PostgresEgress(database)
