"""The records of terminals in SQLite. Each call is one transaction, or one statement that only reads."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from outlive.base import MachineId, NodeId, TerminalId
from outlive.machine.backends import terminal_documents as documents
from outlive.machine.backends.documents import from_doc
from outlive.machine.backends.sqlite_machines import load_machine
from outlive.machine.backends.sqlite_terminal_rows import close_terminals, load_terminal, put_terminal
from outlive.machine.lifecycle import check_holder
from outlive.machine.terminal.records import DecideTerminal
from outlive.machine.terminal.status import Segment, Terminal
from outlive.storage.sqlite import SqliteDatabase


class SqliteTerminals:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def create(self, terminal: Terminal, *, holder: tuple[NodeId, int] | None = None) -> Terminal:
        def write(connection: sqlite3.Connection) -> Terminal:
            if _insert(connection, terminal, holder):
                return terminal
            if connection.execute(documents.SELECT_TERMINAL, (terminal.id,)).fetchone() is None:
                raise documents.name_taken(terminal)
            return load_terminal(connection, terminal.id)

        return await self._database.write(write)

    async def ensure(self, terminal: Terminal, *, holder: tuple[NodeId, int] | None = None) -> Terminal:
        def write(connection: sqlite3.Connection) -> Terminal:
            if _insert(connection, terminal, holder):
                return terminal
            row = connection.execute(documents.SELECT_NAMED, (terminal.machine, terminal.name)).fetchone()
            return load_terminal(connection, terminal.id) if row is None else from_doc(Terminal, row[0])

        return await self._database.write(write)

    async def get(self, terminal: TerminalId) -> Terminal:
        return await self._database.read(lambda connection: load_terminal(connection, terminal))

    async def list(self, machine: MachineId, *, include_ended: bool = True) -> Sequence[Terminal]:
        select = documents.SELECT_TERMINALS if include_ended else documents.SELECT_OPEN
        rows = await self._database.read(lambda connection: connection.execute(select, (machine,)).fetchall())
        return [from_doc(Terminal, doc) for (doc,) in rows]

    async def change(
        self, terminal: TerminalId, decide: DecideTerminal, *, holder: tuple[NodeId, int] | None = None
    ) -> Terminal:
        def write(connection: sqlite3.Connection) -> Terminal:
            current = load_terminal(connection, terminal)
            _check_fence(connection, current.machine, holder)
            changed = documents.apply_decision(current, decide(current))
            return current if changed is None else put_terminal(connection, changed)

        return await self._database.write(write)

    async def close_all(
        self, machine: MachineId, *, at: datetime, reason: str, holder: tuple[NodeId, int] | None = None
    ) -> Sequence[Terminal]:
        def write(connection: sqlite3.Connection) -> list[Terminal]:
            _check_fence(connection, machine, holder)
            return close_terminals(connection, machine, at, reason)

        return await self._database.write(write)

    async def add_segment(
        self,
        segment: Segment,
        *,
        recorded_to: int,
        reserved_to: int | None = None,
        holder: tuple[NodeId, int] | None = None,
    ) -> Segment:
        def write(connection: sqlite3.Connection) -> Segment:
            current = load_terminal(connection, segment.terminal)
            row = connection.execute(documents.SELECT_SEGMENT, (segment.terminal, segment.n)).fetchone()
            if row is not None:
                return from_doc(Segment, row[0])
            _check_fence(connection, current.machine, holder)
            changed = documents.with_segment(current, segment, recorded_to=recorded_to, reserved_to=reserved_to)
            connection.execute(documents.INSERT_SEGMENT, documents.segment_row(segment))
            put_terminal(connection, changed)
            return segment

        return await self._database.write(write)

    async def segments(self, terminal: TerminalId, *, start: int = 0, after: int = 0, limit: int) -> Sequence[Segment]:
        values = (terminal, after, start, start, max(limit, 0))
        rows = await self._database.read(
            lambda connection: connection.execute(documents.SELECT_SEGMENTS, values).fetchall()
        )
        return [from_doc(Segment, doc) for (doc,) in rows]


def _insert(connection: sqlite3.Connection, terminal: Terminal, holder: tuple[NodeId, int] | None) -> bool:
    """Whether it is new."""
    if connection.execute(documents.INSERT_TERMINAL, documents.terminal_row(terminal)).fetchone() is None:
        return False
    _check_fence(connection, terminal.machine, holder)
    return True


def _check_fence(connection: sqlite3.Connection, machine: MachineId, holder: tuple[NodeId, int] | None) -> None:
    if holder is not None:
        check_holder(load_machine(connection, machine), *holder)
