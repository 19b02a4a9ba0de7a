"""The journal of effects in SQLite. `begin` is on the way of every command: one statement, one sync."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from outlive.base import EffectId, MachineId, NodeId, to_text
from outlive.machine.backends import statements
from outlive.machine.backends.documents import (
    EFFECT_COLUMNS,
    as_lost,
    check_may_begin,
    check_same_request,
    forestalled,
    never_begins,
    to_doc,
    to_effect,
    to_row,
    unknown_effect,
    with_result,
)
from outlive.machine.backends.sqlite_machines import load_machine
from outlive.machine.lifecycle import check_holder
from outlive.machine.records import USED_UP_FOR, EffectBegin
from outlive.machine.status import Effect
from outlive.storage.sqlite import SqliteDatabase

_BEGIN = f"""
INSERT INTO effects (machine, effect, n, digest, generation, state, started_at)
SELECT id, ?, (SELECT COALESCE(MAX(n), 0) + 1 FROM effects WHERE machine = m.id), ?, generation, 'started', ?
FROM machines m WHERE id = ? AND node = ? AND generation = ? AND state = 'running'
AND NOT EXISTS (SELECT 1 FROM used_up WHERE effect = ?)
ON CONFLICT (machine, effect) DO NOTHING RETURNING {EFFECT_COLUMNS}
"""  # noqa: S608
_NUMBERS = """
SELECT (SELECT COALESCE(MAX(n), 0) + 1 FROM effects WHERE machine = m.id), generation FROM machines m WHERE id = ?
"""


class SqliteEffects:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def begin(
        self, machine: MachineId, effect: EffectId, *, node: NodeId, generation: int, digest: str, at: datetime
    ) -> EffectBegin:
        values = (effect, digest, to_text(at), machine, node, generation, effect)

        def write(connection: sqlite3.Connection) -> EffectBegin:
            row = connection.execute(_BEGIN, values).fetchone()
            if row is not None:
                return EffectBegin(to_effect(row), True)
            found = _find(connection, machine, effect)
            if found is not None:
                check_same_request(found, digest)
            elif connection.execute(statements.SELECT_USED_UP, (effect,)).fetchone():
                raise never_begins(effect)
            if found is None or not found.is_over:
                check_may_begin(load_machine(connection, machine), node, generation)
            assert found is not None  # or it would have been written
            return EffectBegin(found, False)

        return await self._database.write(write)

    async def use_up(self, effect: EffectId, *, at: datetime) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute(statements.FORGET_USED_UP, (to_text(at - USED_UP_FOR),))
            connection.execute(statements.USE_UP, (effect, to_text(at)))

        await self._database.write(write)

    async def forestall(self, machine: MachineId, effect: EffectId, *, at: datetime) -> Effect | None:
        def write(connection: sqlite3.Connection) -> Effect | None:
            found = _find(connection, machine, effect)
            numbers = connection.execute(_NUMBERS, (machine,)).fetchone()
            if found is not None or numbers is None:
                return found
            n, generation = numbers
            never = forestalled(machine, effect, n, generation, at)
            connection.execute(statements.INSERT_FORESTALLED, to_row(never))
            return never

        return await self._database.write(write)

    async def find(self, machine: MachineId, effect: EffectId) -> Effect | None:
        return await self._database.read(lambda connection: _find(connection, machine, effect))

    async def finish(self, effect: Effect, *, holder: tuple[NodeId, int] | None = None) -> Effect:
        def write(connection: sqlite3.Connection) -> Effect:
            begun = _find(connection, effect.machine, effect.id)
            if begun is None:
                raise unknown_effect(effect.machine, effect.id)
            if begun.is_over:
                return begun
            if holder is not None:
                check_holder(load_machine(connection, effect.machine), *holder)
            return _end(connection, with_result(begun, effect))

        return await self._database.write(write)

    async def list(self, machine: MachineId, *, after: int, limit: int) -> Sequence[Effect]:
        rows = await self._database.read(
            lambda connection: connection.execute(statements.SELECT_EFFECTS, (machine, after, max(limit, 0))).fetchall()
        )
        return [to_effect(row) for row in rows]

    async def begun(self, machine: MachineId) -> Sequence[Effect]:
        rows = await self._database.read(
            lambda connection: connection.execute(statements.SELECT_STARTED, (machine, 0)).fetchall()
        )
        return [to_effect(row) for row in rows]

    async def mark(self, machine: MachineId) -> int:
        row = await self._database.read(
            lambda connection: connection.execute(statements.SELECT_MARK, (machine,)).fetchone()
        )
        return int(row[0])

    async def lose(
        self,
        machine: MachineId,
        *,
        above: int,
        at: datetime,
        except_ids: Sequence[EffectId] = (),
        holder: tuple[NodeId, int] | None = None,
    ) -> Sequence[EffectId]:
        def write(connection: sqlite3.Connection) -> list[EffectId]:
            if holder is not None:
                check_holder(load_machine(connection, machine), *holder)
            rows = connection.execute(statements.SELECT_STARTED, (machine, above)).fetchall()
            lost = [effect for effect in map(to_effect, rows) if effect.id not in kept]
            return [_end(connection, as_lost(effect, at)).id for effect in lost]

        kept = frozenset(except_ids)
        return await self._database.write(write)


def _find(connection: sqlite3.Connection, machine: MachineId, effect: EffectId) -> Effect | None:
    row = connection.execute(statements.SELECT_EFFECT, (machine, effect)).fetchone()
    return None if row is None else to_effect(row)


def _end(connection: sqlite3.Connection, effect: Effect) -> Effect:
    connection.execute(statements.END_EFFECT, (effect.state, to_doc(effect), effect.machine, effect.id))
    return effect
