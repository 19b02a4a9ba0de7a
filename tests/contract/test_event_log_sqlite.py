"""The event log in SQLite keeps what every event log promises."""

import random
import sqlite3
from pathlib import Path

import pytest

from outlive.base import ExhaustedError, new_step_id
from outlive.conversation.backends.sqlite_catalog import SqliteCatalog
from outlive.conversation.backends.sqlite_log import MIGRATIONS, open_sqlite_log
from outlive.storage import migrate_sqlite, open_sqlite
from outlive.storage.sqlite import Work
from outlive.testing.conversations import message, new_conversation, seal, start, whole
from outlive.testing.event_log import EventLogContract
from services.sqlite import SqlitePlace

pytestmark = pytest.mark.anyio


class TestSqliteEventLog(EventLogContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path / "outlive.db")


async def test_an_append_that_found_no_room_leaves_nothing_and_the_next_goes_on(tmp_path: Path) -> None:
    def limit_pages(count: int) -> Work[None]:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute(f"PRAGMA max_page_count={count}").fetchone()

        return work

    async with open_sqlite(tmp_path / "outlive.db") as database, open_sqlite_log(database) as log:
        await migrate_sqlite(database, [MIGRATIONS])
        conversation, step = await new_conversation(SqliteCatalog(database)), new_step_id()
        await log.append(start(conversation, step, 1))
        await database.write(limit_pages(1))
        big = message(conversation, random.Random(1).randbytes(30_000).hex())  # does not get much smaller packed
        with pytest.raises(ExhaustedError):
            await log.append(big)
        await database.write(limit_pages(1_000_000))
        assert (await log.append(seal(conversation, step, 1))).seqs == (3,)
        assert (await log.append(big)).seqs == (4,)
        assert [event.seq for event in await whole(log, conversation)] == [1, 2, 3, 4]
