"""The rows of terminals in PostgreSQL, within a transaction that somebody else began.

Whoever needs a machine's row and a terminal's takes the machine's first, as everywhere.
"""

from datetime import datetime

from outlive.base import MachineId, TerminalId
from outlive.machine.backends import terminal_documents as documents
from outlive.machine.backends.documents import from_doc, numbered
from outlive.machine.terminal.status import Terminal
from outlive.storage.postgres import Connection

_SELECT = numbered(documents.SELECT_TERMINAL)
_SELECT_OPEN = numbered(documents.SELECT_OPEN)
_UPDATE = numbered(documents.UPDATE_TERMINAL)


async def load_terminal(connection: Connection, terminal: TerminalId, *, lock: str = "") -> Terminal:
    doc = await connection.fetchval(f"{_SELECT} {lock}", terminal)
    if doc is None:
        raise documents.unknown_terminal(terminal)
    return from_doc(Terminal, doc)


async def put_terminal(connection: Connection, terminal: Terminal) -> Terminal:
    await connection.execute(_UPDATE, *documents.terminal_update(terminal))
    return terminal


async def close_terminals(connection: Connection, machine: MachineId, at: datetime, reason: str) -> list[Terminal]:
    rows = await connection.fetch(f"{_SELECT_OPEN} FOR UPDATE", machine)
    found = [from_doc(Terminal, row["doc"]) for row in rows]
    return [await put_terminal(connection, documents.as_closed(each, at, reason)) for each in found]
