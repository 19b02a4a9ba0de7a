"""The records of checkpoints in SQLite. Each call is one transaction, or one statement that only reads."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from outlive.base import CheckpointId, MachineId, NodeId, to_text
from outlive.machine.backends import statements
from outlive.machine.backends.documents import from_doc, made_ready, to_doc, unknown_checkpoint
from outlive.machine.backends.sqlite_machines import check_ready, load_machine
from outlive.machine.lifecycle import check_holder
from outlive.machine.status import Checkpoint
from outlive.storage.sqlite import SqliteDatabase


class SqliteCheckpoints:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def begin(self, checkpoint: Checkpoint, *, node: NodeId | None) -> Checkpoint:
        making = checkpoint.model_copy(update={"state": "making"})
        row = (making.id, making.machine, making.parent, "making", to_text(making.deadline_at), to_doc(making))

        def write(connection: sqlite3.Connection) -> Checkpoint:
            _check_fence(connection, making, node)
            if connection.execute(statements.INSERT_CHECKPOINT, row).fetchone() is None:
                return _load(connection, making.id)
            check_ready(connection, [making.parent] if making.parent else [])
            return making

        return await self._database.write(write)

    async def finish(self, checkpoint: Checkpoint, *, node: NodeId | None) -> Checkpoint:
        def write(connection: sqlite3.Connection) -> Checkpoint:
            found = _load(connection, checkpoint.id)
            if found.state == "ready":
                return found
            _check_fence(connection, found, node)
            return _put(connection, made_ready(found, checkpoint))

        return await self._database.write(write)

    async def get(self, checkpoint: CheckpointId) -> Checkpoint:
        return await self._database.read(lambda connection: _load(connection, checkpoint))

    async def list(self, machine: MachineId) -> Sequence[Checkpoint]:
        rows = await self._database.read(
            lambda connection: connection.execute(statements.SELECT_CHECKPOINTS, (machine,)).fetchall()
        )
        return [from_doc(Checkpoint, doc) for (doc,) in rows]

    async def delete(self, checkpoint: CheckpointId) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            row = connection.execute(statements.SELECT_CHECKPOINT, (checkpoint,)).fetchone()
            if row is None:
                raise unknown_checkpoint(checkpoint)
            if connection.execute(statements.SELECT_NEEDED, (checkpoint,) * 4).fetchone() is not None:
                return False
            _put(connection, from_doc(Checkpoint, row[0]).model_copy(update={"state": "deleted"}))
            return True

        return await self._database.write(write)

    async def expire(self, now: datetime) -> Sequence[CheckpointId]:
        def write(connection: sqlite3.Connection) -> list[CheckpointId]:
            rows = connection.execute(statements.SELECT_OVERDUE, (to_text(now),)).fetchall()
            overdue = [from_doc(Checkpoint, doc) for (doc,) in rows]
            return [_put(connection, each.model_copy(update={"state": "deleted"})).id for each in overdue]

        return await self._database.write(write)

    async def living(self) -> tuple[frozenset[CheckpointId], frozenset[CheckpointId]]:
        rows = await self._database.read(lambda connection: connection.execute(statements.SELECT_LIVING).fetchall())
        return (
            frozenset(CheckpointId(checkpoint) for checkpoint, state in rows if state == "ready"),
            frozenset(CheckpointId(checkpoint) for checkpoint, state in rows if state == "making"),
        )

    async def abandoned(self) -> Sequence[CheckpointId]:
        rows = await self._database.read(lambda connection: connection.execute(statements.SELECT_ABANDONED).fetchall())
        return [CheckpointId(checkpoint) for (checkpoint,) in rows]


def _load(connection: sqlite3.Connection, checkpoint: CheckpointId) -> Checkpoint:
    row = connection.execute(statements.SELECT_CHECKPOINT, (checkpoint,)).fetchone()
    found = None if row is None else from_doc(Checkpoint, row[0])
    if found is None or found.state == "deleted":
        raise unknown_checkpoint(checkpoint)
    return found


def _put(connection: sqlite3.Connection, checkpoint: Checkpoint) -> Checkpoint:
    connection.execute(statements.UPDATE_CHECKPOINT, (checkpoint.state, to_doc(checkpoint), checkpoint.id))
    return checkpoint


def _check_fence(connection: sqlite3.Connection, checkpoint: Checkpoint, node: NodeId | None) -> None:
    if node is not None:
        check_holder(load_machine(connection, checkpoint.machine), node, checkpoint.generation)
