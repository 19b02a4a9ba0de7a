"""The records of checkpoints in PostgreSQL.

Whoever refers to a checkpoint holds its row (`check_ready`) until the reference is there, and whoever deletes one holds
it while looking for references: so neither misses the other. Those who hold a machine's row too took that first.
"""

from collections.abc import Sequence
from datetime import datetime

from outlive.base import CheckpointId, MachineId, NodeId, to_text
from outlive.machine.backends import statements
from outlive.machine.backends.documents import from_doc, made_ready, numbered, to_doc, unknown_checkpoint
from outlive.machine.backends.postgres_machines import check_ready, load_machine
from outlive.machine.lifecycle import check_holder
from outlive.machine.status import Checkpoint
from outlive.storage.postgres import Connection, PostgresDatabase

_INSERT = numbered(statements.INSERT_CHECKPOINT)
_SELECT = numbered(statements.SELECT_CHECKPOINT)
_UPDATE = numbered(statements.UPDATE_CHECKPOINT)
_NEEDED = numbered(statements.SELECT_NEEDED)
_OVERDUE = numbered(statements.SELECT_OVERDUE)


class PostgresCheckpoints:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def begin(self, checkpoint: Checkpoint, *, node: NodeId | None) -> Checkpoint:
        making = checkpoint.model_copy(update={"state": "making"})
        row = (making.id, making.machine, making.parent, "making", to_text(making.deadline_at), to_doc(making))

        async def write(connection: Connection) -> Checkpoint:
            await _check_fence(connection, making, node)
            if await connection.fetchval(_INSERT, *row) is None:
                return await _load(connection, making.id)
            await check_ready(connection, [making.parent] if making.parent else [])
            return making

        return await self._database.write(write)

    async def finish(self, checkpoint: Checkpoint, *, node: NodeId | None) -> Checkpoint:
        async def write(connection: Connection) -> Checkpoint:
            found = await _load(connection, checkpoint.id)
            if found.state == "ready":
                return found
            await _check_fence(connection, found, node)
            found = await _load(connection, checkpoint.id, lock="FOR UPDATE")
            return found if found.state == "ready" else await _put(connection, made_ready(found, checkpoint))

        return await self._database.write(write)

    async def get(self, checkpoint: CheckpointId) -> Checkpoint:
        return await self._database.run(lambda connection: _load(connection, checkpoint))

    async def list(self, machine: MachineId) -> Sequence[Checkpoint]:
        select = numbered(statements.SELECT_CHECKPOINTS)
        rows = await self._database.run(lambda connection: connection.fetch(select, machine))
        return [from_doc(Checkpoint, row["doc"]) for row in rows]

    async def delete(self, checkpoint: CheckpointId) -> bool:
        async def write(connection: Connection) -> bool:
            doc = await connection.fetchval(f"{_SELECT} FOR UPDATE", checkpoint)
            if doc is None:
                raise unknown_checkpoint(checkpoint)
            if await connection.fetchval(_NEEDED, *(checkpoint,) * 4) is not None:
                return False
            await _put(connection, from_doc(Checkpoint, doc).model_copy(update={"state": "deleted"}))
            return True

        return await self._database.write(write)

    async def expire(self, now: datetime) -> Sequence[CheckpointId]:
        async def write(connection: Connection) -> list[CheckpointId]:
            rows = await connection.fetch(f"{_OVERDUE} FOR UPDATE", to_text(now))
            overdue = [from_doc(Checkpoint, row["doc"]) for row in rows]
            return [(await _put(connection, each.model_copy(update={"state": "deleted"}))).id for each in overdue]

        return await self._database.write(write)

    async def living(self) -> tuple[frozenset[CheckpointId], frozenset[CheckpointId]]:
        rows = await self._database.run(lambda connection: connection.fetch(statements.SELECT_LIVING))
        return (
            frozenset(CheckpointId(row["id"]) for row in rows if row["state"] == "ready"),
            frozenset(CheckpointId(row["id"]) for row in rows if row["state"] == "making"),
        )

    async def abandoned(self) -> Sequence[CheckpointId]:
        rows = await self._database.run(lambda connection: connection.fetch(statements.SELECT_ABANDONED))
        return [CheckpointId(row["id"]) for row in rows]


async def _load(connection: Connection, checkpoint: CheckpointId, *, lock: str = "") -> Checkpoint:
    doc = await connection.fetchval(f"{_SELECT} {lock}", checkpoint)
    found = None if doc is None else from_doc(Checkpoint, doc)
    if found is None or found.state == "deleted":
        raise unknown_checkpoint(checkpoint)
    return found


async def _put(connection: Connection, checkpoint: Checkpoint) -> Checkpoint:
    await connection.execute(_UPDATE, checkpoint.state, to_doc(checkpoint), checkpoint.id)
    return checkpoint


async def _check_fence(connection: Connection, checkpoint: Checkpoint, node: NodeId | None) -> None:
    """Holds the machine's row: nobody becomes its holder before what this allows is written."""
    if node is not None:
        machine = await load_machine(connection, checkpoint.machine, lock="FOR SHARE")
        check_holder(machine, node, checkpoint.generation)
