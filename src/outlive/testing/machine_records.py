"""Makers of machines, nodes, checkpoints and whole stores of their records, for tests of whatever keeps them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio

from outlive.base import (
    CheckpointId,
    MachineId,
    NodeId,
    OutliveError,
    SystemClock,
    new_checkpoint_id,
    new_machine_id,
    new_node_id,
    new_principal_id,
)
from outlive.machine import lifecycle
from outlive.machine.backends import postgres_records, sqlite_records
from outlive.machine.records import Records
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Checkpoint, Environment, Machine
from outlive.storage import migrate_postgres, migrate_sqlite, open_postgres, open_sqlite
from outlive.testing.conversations import StorePlace

AT = datetime(2030, 1, 2, 3, 4, 5, 6, UTC)
LATER = AT + timedelta(hours=1)

T = TypeVar("T")


@asynccontextmanager
async def records_at(place: StorePlace, *, is_patient: bool = True) -> AsyncIterator[Records]:
    """All records in the database at `place`. May be opened several times at once."""
    if place.kind == "sqlite":
        async with open_sqlite(Path(place.address), busy_timeout_s=20 if is_patient else 0.2) as sqlite:
            if is_patient:
                await migrate_sqlite(sqlite, [sqlite_records.MIGRATIONS])
            yield sqlite_records.sqlite_records(sqlite, SystemClock())
    else:
        async with open_postgres(place.address, pool_size=4) as postgres:
            await migrate_postgres(postgres, [postgres_records.MIGRATIONS])
            yield postgres_records.postgres_records(postgres)


def a_machine(**fields: Any) -> Machine:
    known = {"id": new_machine_id(), "owner": new_principal_id(), "environment": "default", "spec": MachineSpec()}
    return Machine.model_validate(known | {"created_at": AT, "changed_at": AT} | fields)


async def a_running_machine(records: Records, node: NodeId | None = None, **fields: Any) -> tuple[Machine, NodeId, int]:
    """A machine that is up, its node and its generation."""
    node = node or new_node_id()
    made = await records.machines.create(a_machine(**fields))
    return await bring_up(records, made.id, node), node, made.generation + 1


async def bring_up(records: Records, machine: MachineId, node: NodeId) -> Machine:
    begun = await records.machines.change(machine, lambda current: lifecycle.begin_up(current, node, AT))
    end_up = partial(lifecycle.end_up, node=node, generation=begun.generation, now=AT, base_key="base", is_cold=False)
    return await records.machines.change(machine, end_up)


async def move(records: Records, machine: MachineId, node: NodeId, to: NodeId) -> Machine:
    """Its node is gone; it comes up on another."""
    await records.machines.change(
        machine, lambda current: lifecycle.declare_lost(current, node, AT, reason="its node is gone")
    )
    return await bring_up(records, machine, to)


def a_checkpoint(machine: Machine, **fields: Any) -> Checkpoint:
    known = {"id": new_checkpoint_id(), "machine": machine.id, "generation": machine.generation}
    return Checkpoint.model_validate(known | {"created_at": AT, "deadline_at": LATER} | fields)


async def a_ready_checkpoint(records: Records, machine: Machine, **fields: Any) -> CheckpointId:
    begun = await records.checkpoints.begin(a_checkpoint(machine, **fields), node=None)
    return (await records.checkpoints.finish(begun, node=None)).id


def an_environment(name: str = "env", digest: str = "digest", **fields: Any) -> Environment:
    known = {"name": name, "digest": digest, "definition": {"base": "debian", "of": digest}}
    return Environment.model_validate(known | {"created_at": AT, "changed_at": AT} | fields)


async def at_once(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T | OutliveError]:
    """Make all calls at the same time; each one's answer or error, in their order."""
    answers: dict[int, T | OutliveError] = {}

    async def one(number: int) -> None:
        try:
            answers[number] = await calls[number]()
        except OutliveError as error:
            answers[number] = error

    async with anyio.create_task_group() as tasks:
        for number in range(len(calls)):
            tasks.start_soon(one, number)
    return [answers[number] for number in range(len(calls))]
