"""The records of machines in PostgreSQL. A change holds the machine's row from reading to writing."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from outlive.base import CheckpointId, MachineId, OperationId
from outlive.machine.backends import statements
from outlive.machine.backends.documents import (
    apply_change,
    born,
    claimed,
    from_doc,
    machine_row,
    machines_where,
    new_references,
    numbered,
    to_doc,
    unknown_checkpoint,
    unknown_machine,
)
from outlive.machine.backends.postgres_terminal_rows import close_terminals
from outlive.machine.backends.terminal_documents import MACHINE_DELETED
from outlive.machine.lifecycle import Change
from outlive.machine.records import Decide, Gone, MachineFilter
from outlive.machine.status import Machine, MachineEvent
from outlive.storage.postgres import Connection, PostgresDatabase

_INSERT = numbered(statements.INSERT_MACHINE)
_SELECT = numbered(statements.SELECT_MACHINE)
_SELECT_WARM = numbered(statements.SELECT_WARM.format(now="clock_timestamp()"))
_SELECT_CLAIMED = numbered(statements.SELECT_CLAIMED)
_UPDATE = numbered(statements.UPDATE_MACHINE)
_INSERT_EVENT = numbered(statements.INSERT_EVENT)
_SELECT_EVENTS = numbered(statements.SELECT_EVENTS)
_SELECT_CHECKPOINT_STATE = numbered(statements.SELECT_CHECKPOINT_STATE)
# Holds the node's row: a renewal comes before it, and is seen, or after the change, and its node sees that.
_IS_LEASED = "SELECT lease_until >= now() - $2::interval FROM nodes WHERE id = $1 FOR UPDATE"


class PostgresMachines:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def create(self, machine: Machine) -> Machine:
        row = machine_row(machine)

        async def write(connection: Connection) -> Machine:
            if await connection.fetchval(_INSERT, *row) is None:
                return await load_machine(connection, machine.id)
            await check_ready(connection, new_references(None, machine))
            await _tell(connection, machine.id, (born(machine),))
            return machine

        return await self._database.write(write)

    async def get(self, machine: MachineId) -> Machine:
        return await self._database.run(lambda connection: load_machine(connection, machine))

    async def list(self, chosen: MachineFilter, *, limit: int, before: MachineId | None = None) -> Sequence[Machine]:
        where, values = machines_where(chosen, before)
        select = numbered(statements.SELECT_MACHINES.format(where))
        rows = await self._database.run(lambda connection: connection.fetch(select, *values, max(limit, 0)))
        return [from_doc(Machine, row["doc"]) for row in rows]

    async def change(self, machine: MachineId, decide: Decide, *, gone: Gone | None = None) -> Machine:
        async def write(connection: Connection) -> Machine:
            current = await load_machine(connection, machine, lock="FOR UPDATE")
            if gone is not None and await connection.fetchval(_IS_LEASED, gone.node, timedelta(seconds=gone.margin_s)):
                return current
            return await _apply(connection, current, decide(current))

        return await self._database.write(write)

    async def claim_warm(self, environment: str, decide: Decide, *, operation: OperationId) -> Machine | None:
        async def write(connection: Connection) -> Machine | None:
            # The same operation twice at once: the second waits for what the first got.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", operation)
            doc = await connection.fetchval(_SELECT_CLAIMED, operation)
            if doc is not None:
                return from_doc(Machine, doc)
            # First one that nobody is busy with. Only if all are held wait for one: its holder may let it be.
            doc = await connection.fetchval(f"{_SELECT_WARM} FOR UPDATE OF machines SKIP LOCKED", environment)
            if doc is None:
                doc = await connection.fetchval(f"{_SELECT_WARM} FOR UPDATE OF machines", environment)
            if doc is None:
                return None
            current = from_doc(Machine, doc)
            return await _apply(connection, current, claimed(decide(current), operation))

        return await self._database.write(write)

    async def events(self, machine: MachineId, *, after: int, limit: int) -> Sequence[tuple[int, MachineEvent]]:
        async def read(connection: Connection) -> Sequence[tuple[int, MachineEvent]]:
            await load_machine(connection, machine)
            rows = await connection.fetch(_SELECT_EVENTS, machine, after, max(limit, 0))
            return [(row["n"], from_doc(MachineEvent, row["doc"])) for row in rows]

        return await self._database.run(read)


async def load_machine(connection: Connection, machine: MachineId, *, lock: str = "") -> Machine:
    doc = await connection.fetchval(f"{_SELECT} {lock}", machine)
    if doc is None:
        raise unknown_machine(machine)
    return from_doc(Machine, doc)


async def check_ready(connection: Connection, checkpoints: Iterable[CheckpointId]) -> None:
    """Holds them, so that none is deleted before the reference to it is there."""
    for checkpoint in checkpoints:
        if await connection.fetchval(f"{_SELECT_CHECKPOINT_STATE} FOR SHARE", checkpoint) != "ready":
            raise unknown_checkpoint(checkpoint)


async def _apply(connection: Connection, current: Machine, change: Change) -> Machine:
    changed = apply_change(current, change)
    if changed is None:
        return current
    await check_ready(connection, new_references(current, changed))
    await connection.execute(_UPDATE, *machine_row(changed)[1:], changed.id)
    await _tell(connection, changed.id, change.events)
    if changed.state == "deleted" and current.state != "deleted":
        await close_terminals(connection, changed.id, changed.changed_at, MACHINE_DELETED)
    return changed


async def _tell(connection: Connection, machine: MachineId, events: Iterable[MachineEvent]) -> None:
    """The machine's row is held, so nobody else counts on from the same number."""
    for event in events:
        await connection.execute(_INSERT_EVENT, to_doc(event), machine)
