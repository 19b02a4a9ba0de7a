"""A SQLite file for a test, and another process that holds its lock."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio

_LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


class SqlitePlace:
    kind: Literal["sqlite", "postgres"] = "sqlite"

    def __init__(self, path: Path) -> None:
        self.address = str(path)

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Inside, another process holds the lock for writing."""
        command = [sys.executable, "-c", _LOCKER, self.address]
        async with await anyio.open_process(command) as locker:
            assert locker.stdout is not None
            assert (await locker.stdout.receive()).startswith(b"locked")
            try:
                yield
            finally:
                locker.kill()
