"""A terminal with a spool, records in SQLite and an object store on disk, for tests of its recording."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive.base import NodeId
from outlive.machine.node.terminals.spool import Spool, spool_folder
from outlive.machine.records import Records
from outlive.machine.terminal.journal import Record
from outlive.machine.terminal.recording import Gap, LocalJournal, Piece, Recordings
from outlive.machine.terminal.status import Terminal
from outlive.storage.objects import ObjectStore, open_objects
from outlive.testing.machine_records import AT, a_running_machine, records_at
from outlive.testing.terminal_records import a_terminal
from services.sqlite import SqlitePlace


@dataclass
class Recorded:
    path: Path
    records: Records
    objects: ObjectStore
    recordings: Recordings
    holder: tuple[NodeId, int]
    first: Terminal
    spools: list[Spool] = field(default_factory=list)

    async def another(self, **fields: Any) -> Terminal:
        return await self.records.terminals.create(a_terminal(self.first.machine, **fields))

    def spool(self, terminal: Terminal, *, n: int = 1, offset: int = 0) -> Spool:
        folder = spool_folder(self.path, terminal.id)
        spool = Spool.begin(folder, terminal.id, n=n, offset=offset, input_offset=0, generation=1, at=AT)
        self.spools.append(spool)
        return spool

    async def write(self, spool: Spool, *records: Record, is_uploaded: bool = True) -> None:
        """Into one segment, and to the store."""
        for record in records:
            spool.append(record)
        if is_uploaded:
            spool.cut(AT)
            await self.recordings.upload(spool, holder=self.holder)

    async def output(
        self, terminal: Terminal, start: int = 0, end: int | None = None, *, local: LocalJournal | None = None
    ) -> list[Piece | Gap]:
        """With pieces that lie side by side as one."""
        found: list[Piece | Gap] = []
        terminal = await self.records.terminals.get(terminal.id)
        async for part in self.recordings.read_output(terminal, start, end, local=local):
            last = found[-1] if found else None
            if isinstance(part, Piece) and isinstance(last, Piece) and last.offset + len(last.data) == part.offset:
                found[-1] = Piece(last.offset, last.data + part.data)
            else:
                found.append(part)
        return found


@asynccontextmanager
async def open_recorded(path: Path) -> AsyncIterator[Recorded]:
    place = SqlitePlace(path / "outlive.db")
    async with records_at(place) as records:
        machine, node, generation = await a_running_machine(records)
        first = await records.terminals.create(a_terminal(machine.id))
        objects = open_objects(path / "objects")
        recordings = Recordings(objects, records.terminals)
        made = Recorded(path, records, objects, recordings, (node, generation), first)
        try:
            yield made
        finally:
            for spool in made.spools:
                spool.close()
