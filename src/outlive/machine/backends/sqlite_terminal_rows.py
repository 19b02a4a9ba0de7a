"""The rows of terminals in SQLite, within a transaction that somebody else began."""

import sqlite3
from datetime import datetime

from outlive.base import MachineId, TerminalId
from outlive.machine.backends import terminal_documents as documents
from outlive.machine.backends.documents import from_doc
from outlive.machine.terminal.status import Terminal


def load_terminal(connection: sqlite3.Connection, terminal: TerminalId) -> Terminal:
    row = connection.execute(documents.SELECT_TERMINAL, (terminal,)).fetchone()
    if row is None:
        raise documents.unknown_terminal(terminal)
    return from_doc(Terminal, row[0])


def put_terminal(connection: sqlite3.Connection, terminal: Terminal) -> Terminal:
    connection.execute(documents.UPDATE_TERMINAL, documents.terminal_update(terminal))
    return terminal


def close_terminals(connection: sqlite3.Connection, machine: MachineId, at: datetime, reason: str) -> list[Terminal]:
    rows = connection.execute(documents.SELECT_OPEN, (machine,)).fetchall()
    found = [from_doc(Terminal, doc) for (doc,) in rows]
    return [put_terminal(connection, documents.as_closed(each, at, reason)) for each in found]
