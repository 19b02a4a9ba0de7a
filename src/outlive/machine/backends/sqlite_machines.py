"""The records of machines in SQLite. One writer thread: each call that changes something is one transaction."""

import sqlite3
from collections.abc import Iterable, Sequence

from outlive.base import CheckpointId, Clock, MachineId, OperationId, to_text
from outlive.machine.backends import statements
from outlive.machine.backends.documents import (
    apply_change,
    born,
    claimed,
    from_doc,
    machine_row,
    machines_where,
    new_references,
    to_doc,
    unknown_checkpoint,
    unknown_machine,
)
from outlive.machine.backends.sqlite_nodes import is_gone
from outlive.machine.backends.sqlite_terminal_rows import close_terminals
from outlive.machine.backends.terminal_documents import MACHINE_DELETED
from outlive.machine.lifecycle import Change
from outlive.machine.records import Decide, Gone, MachineFilter
from outlive.machine.status import Machine, MachineEvent
from outlive.storage.sqlite import SqliteDatabase

_SELECT_WARM = statements.SELECT_WARM.format(now="?")


class SqliteMachines:
    def __init__(self, database: SqliteDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(self, machine: Machine) -> Machine:
        def write(connection: sqlite3.Connection) -> Machine:
            if connection.execute(statements.INSERT_MACHINE, machine_row(machine)).fetchone() is None:
                return load_machine(connection, machine.id)
            check_ready(connection, new_references(None, machine))
            _tell(connection, machine.id, (born(machine),))
            return machine

        return await self._database.write(write)

    async def get(self, machine: MachineId) -> Machine:
        return await self._database.read(lambda connection: load_machine(connection, machine))

    async def list(self, chosen: MachineFilter, *, limit: int, before: MachineId | None = None) -> Sequence[Machine]:
        where, values = machines_where(chosen, before)
        rows = await self._database.read(
            lambda connection: connection.execute(
                statements.SELECT_MACHINES.format(where), (*values, max(limit, 0))
            ).fetchall()
        )
        return [from_doc(Machine, doc) for (doc,) in rows]

    async def change(self, machine: MachineId, decide: Decide, *, gone: Gone | None = None) -> Machine:
        def write(connection: sqlite3.Connection) -> Machine:
            current = load_machine(connection, machine)
            if gone is not None and not is_gone(connection, gone, self._clock.now()):
                return current
            return _apply(connection, current, decide(current))

        return await self._database.write(write)

    async def claim_warm(self, environment: str, decide: Decide, *, operation: OperationId) -> Machine | None:
        def write(connection: sqlite3.Connection) -> Machine | None:
            row = connection.execute(statements.SELECT_CLAIMED, (operation,)).fetchone()
            if row is not None:
                return from_doc(Machine, row[0])
            row = connection.execute(_SELECT_WARM, (environment, to_text(self._clock.now()))).fetchone()
            if row is None:
                return None
            current = from_doc(Machine, row[0])
            return _apply(connection, current, claimed(decide(current), operation))

        return await self._database.write(write)

    async def events(self, machine: MachineId, *, after: int, limit: int) -> Sequence[tuple[int, MachineEvent]]:
        def read(connection: sqlite3.Connection) -> Sequence[tuple[int, str]]:
            load_machine(connection, machine)
            return connection.execute(statements.SELECT_EVENTS, (machine, after, max(limit, 0))).fetchall()

        return [(n, from_doc(MachineEvent, doc)) for n, doc in await self._database.read(read)]


def load_machine(connection: sqlite3.Connection, machine: MachineId) -> Machine:
    row = connection.execute(statements.SELECT_MACHINE, (machine,)).fetchone()
    if row is None:
        raise unknown_machine(machine)
    return from_doc(Machine, row[0])


def check_ready(connection: sqlite3.Connection, checkpoints: Iterable[CheckpointId]) -> None:
    for checkpoint in checkpoints:
        if connection.execute(statements.SELECT_CHECKPOINT_STATE, (checkpoint,)).fetchone() != ("ready",):
            raise unknown_checkpoint(checkpoint)


def _apply(connection: sqlite3.Connection, current: Machine, change: Change) -> Machine:
    changed = apply_change(current, change)
    if changed is None:
        return current
    check_ready(connection, new_references(current, changed))
    connection.execute(statements.UPDATE_MACHINE, (*machine_row(changed)[1:], changed.id))
    _tell(connection, changed.id, change.events)
    if changed.state == "deleted" and current.state != "deleted":
        close_terminals(connection, changed.id, changed.changed_at, MACHINE_DELETED)
    return changed


def _tell(connection: sqlite3.Connection, machine: MachineId, events: Iterable[MachineEvent]) -> None:
    connection.executemany(statements.INSERT_EVENT, [(to_doc(event), machine) for event in events])
