"""The journal of effects in PostgreSQL. `begin` is on the way of every command: one statement, one sync."""

from collections.abc import Sequence
from datetime import datetime

import asyncpg

from outlive.base import EffectId, MachineId, NodeId, NotFoundError, UnavailableError, to_text
from outlive.machine.backends import statements
from outlive.machine.backends.documents import (
    EFFECT_COLUMNS,
    as_lost,
    check_may_begin,
    check_same_request,
    forestalled,
    never_begins,
    numbered,
    to_doc,
    to_effect,
    to_row,
    unknown_effect,
    with_result,
)
from outlive.machine.backends.postgres_machines import load_machine
from outlive.machine.lifecycle import check_holder
from outlive.machine.records import USED_UP_FOR, EffectBegin
from outlive.machine.status import Effect
from outlive.storage.postgres import Connection, PostgresDatabase

# The update takes the machine's row, or waits for who has it and looks at the row anew: so the fence holds when this is
# committed, and `n` has no hole, since an id that is taken undoes the whole statement.
_BEGIN = f"""
WITH holder AS (
    UPDATE machines SET begun = begun + 1
    WHERE id = $1 AND node = $2 AND generation = $3 AND state = 'running'
    AND NOT EXISTS (SELECT 1 FROM used_up WHERE effect = $4) RETURNING begun
)
INSERT INTO effects (machine, effect, n, digest, generation, state, started_at)
SELECT $1, $4, holder.begun, $5, $3, 'started', $6 FROM holder RETURNING {EFFECT_COLUMNS}
"""  # noqa: S608
_SELECT = numbered(statements.SELECT_EFFECT)
_SELECT_USED_UP = numbered(statements.SELECT_USED_UP)
_FORGET_USED_UP = numbered(statements.FORGET_USED_UP)
_USE_UP = numbered(statements.USE_UP)
_NUMBERS = "UPDATE machines SET begun = begun + 1 WHERE id = $1 RETURNING begun, generation"
_INSERT_FORESTALLED = numbered(statements.INSERT_FORESTALLED)
_SELECT_STARTED = numbered(statements.SELECT_STARTED)
_END = numbered(statements.END_EFFECT)


class PostgresEffects:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def begin(
        self, machine: MachineId, effect: EffectId, *, node: NodeId, generation: int, digest: str, at: datetime
    ) -> EffectBegin:
        async def begin(connection: Connection) -> EffectBegin:
            try:
                row = await connection.fetchrow(_BEGIN, machine, node, generation, effect, digest, to_text(at))
            except asyncpg.UniqueViolationError:
                row = None
            if row is not None:
                return EffectBegin(to_effect(tuple(row)), True)
            found = await _find(connection, machine, effect)
            if found is not None:
                check_same_request(found, digest)
            elif await connection.fetchval(_SELECT_USED_UP, effect):
                raise never_begins(effect)
            if found is None or not found.is_over:
                check_may_begin(await load_machine(connection, machine), node, generation)
            if found is None:
                raise UnavailableError("effect.race", f"Machine {machine!r} came up just now; ask again.")
            return EffectBegin(found, False)

        return await self._database.run(begin)

    async def use_up(self, effect: EffectId, *, at: datetime) -> None:
        async def write(connection: Connection) -> None:
            await connection.execute(_FORGET_USED_UP, to_text(at - USED_UP_FOR))
            await connection.execute(_USE_UP, effect, to_text(at))

        await self._database.run(write)

    async def forestall(self, machine: MachineId, effect: EffectId, *, at: datetime) -> Effect | None:
        # Whoever begins it at this moment has the machine's row; we wait, and then find what it has written.
        async def write(connection: Connection) -> Effect | None:
            await load_machine(connection, machine, lock="FOR UPDATE")
            if (found := await _find(connection, machine, effect)) is not None:
                return found
            numbers = await connection.fetchrow(_NUMBERS, machine)
            assert numbers is not None
            n, generation = numbers
            never = forestalled(machine, effect, n, generation, at)
            await connection.execute(_INSERT_FORESTALLED, *to_row(never))
            return never

        try:
            return await self._database.write(write)
        except NotFoundError:
            return None

    async def find(self, machine: MachineId, effect: EffectId) -> Effect | None:
        return await self._database.run(lambda connection: _find(connection, machine, effect))

    async def finish(self, effect: Effect, *, holder: tuple[NodeId, int] | None = None) -> Effect:
        async def write(connection: Connection) -> Effect:
            # The machine first, as everywhere: whoever takes both takes them in this order.
            machine = await load_machine(connection, effect.machine, lock="FOR SHARE") if holder is not None else None
            begun = await _find(connection, effect.machine, effect.id, lock="FOR UPDATE")
            if begun is None:
                raise unknown_effect(effect.machine, effect.id)
            if begun.is_over:
                return begun
            if machine is not None and holder is not None:
                check_holder(machine, *holder)
            return await _end(connection, with_result(begun, effect))

        return await self._database.write(write)

    async def list(self, machine: MachineId, *, after: int, limit: int) -> Sequence[Effect]:
        select = numbered(statements.SELECT_EFFECTS)
        rows = await self._database.run(lambda connection: connection.fetch(select, machine, after, max(limit, 0)))
        return [to_effect(tuple(row)) for row in rows]

    async def begun(self, machine: MachineId) -> Sequence[Effect]:
        rows = await self._database.run(lambda connection: connection.fetch(_SELECT_STARTED, machine, 0))
        return [to_effect(tuple(row)) for row in rows]

    async def mark(self, machine: MachineId) -> int:
        select = numbered(statements.SELECT_MARK)
        return int(await self._database.run(lambda connection: connection.fetchval(select, machine)))

    async def lose(
        self,
        machine: MachineId,
        *,
        above: int,
        at: datetime,
        except_ids: Sequence[EffectId] = (),
        holder: tuple[NodeId, int] | None = None,
    ) -> Sequence[EffectId]:
        kept = frozenset(except_ids)

        async def write(connection: Connection) -> list[EffectId]:
            if holder is not None:
                check_holder(await load_machine(connection, machine, lock="FOR SHARE"), *holder)
            rows = await connection.fetch(f"{_SELECT_STARTED} FOR UPDATE", machine, above)
            lost = [effect for effect in (to_effect(tuple(row)) for row in rows) if effect.id not in kept]
            return [(await _end(connection, as_lost(effect, at))).id for effect in lost]

        return await self._database.write(write)


async def _find(connection: Connection, machine: MachineId, effect: EffectId, *, lock: str = "") -> Effect | None:
    row = await connection.fetchrow(f"{_SELECT} {lock}", machine, effect)
    return None if row is None else to_effect(tuple(row))


async def _end(connection: Connection, effect: Effect) -> Effect:
    await connection.execute(_END, effect.state, to_doc(effect), effect.machine, effect.id)
    return effect
