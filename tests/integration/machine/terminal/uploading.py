"""Uploads what a spool has, in a process of its own that may be killed on the way."""

import sys
from pathlib import Path

import anyio

from outlive.base import SystemClock, TerminalId
from outlive.machine.backends.sqlite_records import sqlite_records
from outlive.machine.node.terminals.spool import Spool, spool_folder
from outlive.machine.terminal.recording import Recordings
from outlive.storage import open_sqlite
from outlive.storage.objects import open_objects


async def main(path: Path, terminal: TerminalId) -> None:
    spool = Spool.reopen(spool_folder(path, terminal), terminal)
    assert spool is not None
    async with open_sqlite(path / "outlive.db") as sqlite:
        records = sqlite_records(sqlite, SystemClock())
        await Recordings(open_objects(path / "objects"), records.terminals).upload(spool, holder=None)


anyio.run(main, Path(sys.argv[1]), TerminalId(sys.argv[2]))
