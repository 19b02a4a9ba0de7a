"""Machines of an environment wait ready; who wants one has it at once, and the same request never has two."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually
from integration.machine.environments.house import OWNER, House, a_definition, open_house
from outlive.base import MachineId, new_operation_id
from outlive.machine.node.idle import IdlePolicy
from outlive.machine.node.watch import watch_residents
from outlive.machine.pool import WarmPool
from outlive.machine.records import MachineFilter, MachineRecords
from outlive.machine.status import Machine
from outlive.testing.idempotency import HeldClock

pytestmark = pytest.mark.anyio


Hook = Callable[[], Awaitable[None]]
_CLOCK = HeldClock()  # ids of a pool come from the minute too


async def _nothing() -> None:
    pass


class _Interleaved:
    """The real records of machines, and a place between two steps where another worker comes in."""

    def __init__(self, real: MachineRecords, after_list: Hook, before_create: Hook) -> None:
        self._real = real
        self._after_list = after_list
        self._before_create = before_create

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def list(self, chosen: MachineFilter, *, limit: int, before: MachineId | None = None) -> Sequence[Machine]:
        found = await self._real.list(chosen, limit=limit, before=before)
        await self._after_list()
        return found

    async def create(self, machine: Machine) -> Machine:
        await self._before_create()
        return await self._real.create(machine)


def _worker(house: House, after_list: Hook = _nothing, before_create: Hook = _nothing) -> WarmPool:
    room = house.room
    machines = _Interleaved(room.records.machines, after_list, before_create)
    return WarmPool(room.records._replace(machines=machines), room.keeper, room.settler, house.builder, _CLOCK)


async def _warm(house: House) -> Sequence[Machine]:
    return await house.room.records.machines.list(MachineFilter(is_warm=True), limit=99)


async def waiting(house: House) -> list[Machine]:
    return [machine for machine in await _warm(house) if machine.state == "running"]


async def test_a_pool_is_filled_given_out_of_and_filled_again(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        ready = await house.environments.define(a_definition("warm", warm=2))
        await house.pool.look_once()
        first, second = await waiting(house)
        assert first.environment == second.environment == ready.digest
        assert await house.room.records.machines.list(MachineFilter(), limit=9) == []  # they are nobody's

        claimed = await house.create("warm")
        assert claimed.id in (first.id, second.id)
        assert (claimed.owner, claimed.environment, claimed.state) == (OWNER, "warm", "running")
        assert (claimed.generation, claimed.is_warm) == (1, False)
        assert (await house.room.exec(claimed.id, "echo here")).stdout == "here\n"

        await house.pool.look_once()
        assert len(await waiting(house)) == 2
        assert (await house.pool.look_once()).create == ()


async def test_a_request_that_is_run_again_gets_the_machine_that_it_claimed(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.environments.define(a_definition("warm", warm=1))
        await house.pool.look_once()
        operation = new_operation_id()
        # The first run died after the claim, before anybody had an answer; meanwhile the pool was filled.
        claimed = await house.create("warm", operation)
        await house.pool.look_once()
        again = await house.create("warm", operation)
        assert again == claimed
        assert len(await waiting(house)) == 1
        # Also when the name stands for something else by now.
        await house.environments.define(a_definition("warm", env={"A": "b"}))
        assert await house.create("warm", operation) == claimed


async def test_a_request_that_made_a_machine_claims_none_when_it_is_run_again(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.environments.define(a_definition("warm", warm=1))
        operation = new_operation_id()
        made = await house.create("warm", operation)  # nobody waits yet
        await house.pool.look_once()
        assert (await house.create("warm", operation)).id == made.id
        assert len(await waiting(house)) == 1


async def test_machines_of_an_outdated_build_are_let_go_and_claimed_ones_are_kept(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.environments.define(a_definition("warm", warm=2))
        await house.pool.look_once()
        claimed = await house.create("warm")
        newer = await house.environments.define(a_definition("warm", env={"A": "b"}, warm=1))
        await house.pool.look_once()
        [machine] = await waiting(house)
        assert machine.environment == newer.digest
        assert (await house.room.records.machines.get(claimed.id)).state == "running"
        # Let go of one that was claimed a moment ago: its owner keeps it.
        await house.room.keeper.release(claimed.id)
        assert (await house.room.records.machines.get(claimed.id)).desired == "running"

        await house.environments.define(a_definition("warm", env={"A": "b"}, warm=0))
        await house.pool.look_once()
        assert await waiting(house) == []


async def test_a_pool_that_went_to_sleep_with_its_node_is_woken(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.environments.define(a_definition("warm", warm=1))
        await house.pool.look_once()
        [machine] = await waiting(house)
        assert await house.room.node_of(machine).drain() == []
        assert await waiting(house) == []
        await house.pool.look_once()
        [woken] = await waiting(house)
        assert (woken.id, woken.generation) == (machine.id, machine.generation + 1)


async def test_workers_that_fill_a_pool_at_the_same_time_make_the_same_machines(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.environments.define(a_definition("warm", warm=2))
        looked = 0

        async def all_have_looked() -> None:
            nonlocal looked
            looked += 1
            await eventually(lambda: looked == 3, within_s=60)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(_worker(house, after_list=all_have_looked).look_once)
        assert len(await waiting(house)) == 2
        assert len(await _warm(house)) == 2


async def test_a_worker_that_looks_while_another_one_fills_makes_too_many_only_for_a_moment(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        await house.environments.define(a_definition("warm", warm=2))
        made = 0

        async def another_looks() -> None:
            nonlocal made
            made += 1
            if made == 2:  # it sees the first one and not the second
                await _worker(house).look_once()

        await _worker(house, before_create=another_looks).look_once()
        assert len(await _warm(house)) == 3
        assert len((await house.pool.look_once()).release) == 1
        assert len(await waiting(house)) == 2
        assert len(await _warm(house)) == 2
        nothing = await house.pool.look_once()
        assert (nothing.create, nothing.release) == ((), ())


async def test_a_warm_machine_is_frozen_never_hibernated_and_its_new_owner_has_it_for_a_while(tmp_path: Path) -> None:
    async with open_house(tmp_path, idle=IdlePolicy(0.1, 2.0)) as house, anyio.create_task_group() as group:
        await house.environments.define(a_definition("warm", warm=1, start=("sleep 1000",)))
        await house.build(a_definition("warm", warm=1, start=("sleep 1000",)))
        await house.pool.look_once()
        [machine] = await waiting(house)
        node = house.room.node_of(machine)
        resident = node.residents.get(machine.id, machine.generation)
        group.start_soon(watch_residents, node)
        await eventually(lambda: "idle" in resident.frozen and resident.quiet_s > 3.5, within_s=20)
        assert [found.id for found in await waiting(house)] == [machine.id]
        claimed = await house.create("warm")
        assert claimed.id == machine.id
        assert (await house.room.exec(claimed.id, "echo thawed")).stdout == "thawed\n"
        group.cancel_scope.cancel()
