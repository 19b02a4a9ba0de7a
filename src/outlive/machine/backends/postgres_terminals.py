"""The records of terminals in PostgreSQL. A change holds the terminal's row, and the machine's if it is fenced."""

from collections.abc import Sequence
from datetime import datetime

from outlive.base import MachineId, NodeId, TerminalId
from outlive.machine.backends import terminal_documents as documents
from outlive.machine.backends.documents import from_doc, numbered
from outlive.machine.backends.postgres_machines import load_machine
from outlive.machine.backends.postgres_terminal_rows import close_terminals, load_terminal, put_terminal
from outlive.machine.lifecycle import check_holder
from outlive.machine.terminal.records import DecideTerminal
from outlive.machine.terminal.status import Segment, Terminal
from outlive.storage.postgres import Connection, PostgresDatabase

_INSERT = numbered(documents.INSERT_TERMINAL)
_SELECT = numbered(documents.SELECT_TERMINAL)
_SELECT_NAMED = numbered(documents.SELECT_NAMED)
_INSERT_SEGMENT = numbered(documents.INSERT_SEGMENT)
_SELECT_SEGMENT = numbered(documents.SELECT_SEGMENT)
_SELECT_SEGMENTS = numbered(documents.SELECT_SEGMENTS)


class PostgresTerminals:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def create(self, terminal: Terminal, *, holder: tuple[NodeId, int] | None = None) -> Terminal:
        async def write(connection: Connection) -> Terminal:
            if await _insert(connection, terminal, holder):
                return terminal
            if await connection.fetchval(_SELECT, terminal.id) is None:
                raise documents.name_taken(terminal)
            return await load_terminal(connection, terminal.id)

        return await self._database.write(write)

    async def ensure(self, terminal: Terminal, *, holder: tuple[NodeId, int] | None = None) -> Terminal:
        async def write(connection: Connection) -> Terminal:
            if await _insert(connection, terminal, holder):
                return terminal
            doc = await connection.fetchval(_SELECT_NAMED, terminal.machine, terminal.name)
            return await load_terminal(connection, terminal.id) if doc is None else from_doc(Terminal, doc)

        return await self._database.write(write)

    async def get(self, terminal: TerminalId) -> Terminal:
        return await self._database.run(lambda connection: load_terminal(connection, terminal))

    async def list(self, machine: MachineId, *, include_ended: bool = True) -> Sequence[Terminal]:
        select = numbered(documents.SELECT_TERMINALS if include_ended else documents.SELECT_OPEN)
        rows = await self._database.run(lambda connection: connection.fetch(select, machine))
        return [from_doc(Terminal, row["doc"]) for row in rows]

    async def change(
        self, terminal: TerminalId, decide: DecideTerminal, *, holder: tuple[NodeId, int] | None = None
    ) -> Terminal:
        async def write(connection: Connection) -> Terminal:
            current = await _hold(connection, terminal, holder)
            changed = documents.apply_decision(current, decide(current))
            return current if changed is None else await put_terminal(connection, changed)

        return await self._database.write(write)

    async def close_all(
        self, machine: MachineId, *, at: datetime, reason: str, holder: tuple[NodeId, int] | None = None
    ) -> Sequence[Terminal]:
        async def write(connection: Connection) -> list[Terminal]:
            await _check_fence(connection, machine, holder)
            return await close_terminals(connection, machine, at, reason)

        return await self._database.write(write)

    async def add_segment(
        self,
        segment: Segment,
        *,
        recorded_to: int,
        reserved_to: int | None = None,
        holder: tuple[NodeId, int] | None = None,
    ) -> Segment:
        async def write(connection: Connection) -> Segment:
            # What is there never changes: it is told to anybody, also to whom the fence has shut out.
            doc = await connection.fetchval(_SELECT_SEGMENT, segment.terminal, segment.n)
            if doc is not None:
                return from_doc(Segment, doc)
            current = await _hold(connection, segment.terminal, holder)
            doc = await connection.fetchval(_SELECT_SEGMENT, segment.terminal, segment.n)
            if doc is not None:  # came while we waited for the row
                return from_doc(Segment, doc)
            changed = documents.with_segment(current, segment, recorded_to=recorded_to, reserved_to=reserved_to)
            await connection.execute(_INSERT_SEGMENT, *documents.segment_row(segment))
            await put_terminal(connection, changed)
            return segment

        return await self._database.write(write)

    async def segments(self, terminal: TerminalId, *, start: int = 0, after: int = 0, limit: int) -> Sequence[Segment]:
        values = (terminal, after, start, start, max(limit, 0))
        rows = await self._database.run(lambda connection: connection.fetch(_SELECT_SEGMENTS, *values))
        return [from_doc(Segment, row["doc"]) for row in rows]


async def _hold(connection: Connection, terminal: TerminalId, holder: tuple[NodeId, int] | None) -> Terminal:
    """The terminal's row, held. Which machine it is in never changes, so that may be read before."""
    if holder is not None:
        found = await load_terminal(connection, terminal)
        await _check_fence(connection, found.machine, holder)
    return await load_terminal(connection, terminal, lock="FOR UPDATE")


async def _insert(connection: Connection, terminal: Terminal, holder: tuple[NodeId, int] | None) -> bool:
    """Whether it is new. Nobody waits for a row that is not there yet, so the machine's may come second here."""
    if await connection.fetchval(_INSERT, *documents.terminal_row(terminal)) is None:
        return False
    await _check_fence(connection, terminal.machine, holder)
    return True


async def _check_fence(connection: Connection, machine: MachineId, holder: tuple[NodeId, int] | None) -> None:
    if holder is not None:
        check_holder(await load_machine(connection, machine, lock="FOR SHARE"), *holder)
