"""What every store of records of checkpoints promises: subclass `CheckpointRecordsContract` with a `place` fixture."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest

from outlive.base import (
    CheckpointId,
    FencedError,
    MachineId,
    NotFoundError,
    new_machine_id,
    new_node_id,
)
from outlive.machine import lifecycle
from outlive.machine.records import Records
from outlive.machine.status import Checkpoint, Environment, Machine
from outlive.testing.conversations import StorePlace
from outlive.testing.machine_records import (
    LATER,
    a_checkpoint,
    a_machine,
    a_ready_checkpoint,
    a_running_machine,
    an_environment,
    at_once,
    move,
    records_at,
)

PACKS = ("pack-1", "pack-2")


async def remove(records: Records, machine: MachineId) -> Machine:
    return await records.machines.change(machine, lambda found: lifecycle.end_remove(found, LATER))


async def is_deleted(records: Records, checkpoint: CheckpointId) -> bool:
    try:
        await records.checkpoints.get(checkpoint)
    except NotFoundError:
        return True
    return False


class CheckpointRecordsContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_a_checkpoint_is_making_and_then_ready(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            machine, node, _ = await a_running_machine(records)
            making = await records.checkpoints.begin(a_checkpoint(machine), node=node)
            assert making.state == "making"
            assert await others.checkpoints.get(making.id) == making
            said = making.model_copy(update={"packs": PACKS, "has_memory": True, "total_bytes": 1 << 40})
            ready = await records.checkpoints.finish(said, node=node)
            assert ready == said.model_copy(update={"state": "ready"})
            assert await others.checkpoints.get(making.id) == ready

    async def test_begun_and_finished_again_it_stays_as_it_is(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, _ = await a_running_machine(records)
            making = await records.checkpoints.begin(a_checkpoint(machine), node=node)
            assert await records.checkpoints.begin(making, node=node) == making
            ready = await records.checkpoints.finish(making.model_copy(update={"packs": PACKS}), node=node)
            assert await records.checkpoints.finish(making, node=node) == ready
            assert await records.checkpoints.begin(making, node=node) == ready
            assert await records.checkpoints.list(machine.id) == [ready]

    async def test_only_who_has_the_machine_begins_and_finishes(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, _ = await a_running_machine(records)
            begun = await records.checkpoints.begin(a_checkpoint(machine), node=node)
            moved = await move(records, machine.id, node, node)
            for call in (
                partial(records.checkpoints.begin, a_checkpoint(machine), node=node),
                partial(records.checkpoints.begin, a_checkpoint(moved), node=new_node_id()),
                partial(records.checkpoints.finish, begun, node=node),
                # Whose it is was said at the beginning.
                partial(
                    records.checkpoints.finish,
                    begun.model_copy(update={"generation": moved.generation}),
                    node=node,
                ),
            ):
                with pytest.raises(FencedError) as refused:
                    await call()
                assert refused.value.code == "machine.fenced"
            assert (await records.checkpoints.get(begun.id)).state == "making"
            assert [each.id for each in await records.checkpoints.list(machine.id)] == [begun.id]

    async def test_unknown_ones_are_not_found(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, _ = await a_running_machine(records)
            unknown = a_checkpoint(machine)
            for call in (
                partial(records.checkpoints.get, unknown.id),
                partial(records.checkpoints.finish, unknown, node=node),
                partial(records.checkpoints.delete, unknown.id),
                partial(records.checkpoints.begin, a_checkpoint(machine, parent=unknown.id), node=node),
            ):
                with pytest.raises(NotFoundError) as refused:
                    await call()
                assert refused.value.code == "checkpoint.unknown"
            with pytest.raises(NotFoundError) as refused:
                await records.checkpoints.begin(a_checkpoint(a_machine()), node=node)
            assert refused.value.code == "machine.unknown"
            assert await records.checkpoints.list(machine.id) == []
            assert await records.checkpoints.list(new_machine_id()) == []

    async def test_a_parent_has_to_be_ready(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, _ = await a_running_machine(records)
            making = await records.checkpoints.begin(a_checkpoint(machine), node=node)
            with pytest.raises(NotFoundError):
                await records.checkpoints.begin(a_checkpoint(machine, parent=making.id), node=node)
            await records.checkpoints.finish(making, node=node)
            await records.checkpoints.begin(a_checkpoint(machine, parent=making.id), node=node)

    async def test_they_are_listed_newest_first_without_deleted_ones(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, _, _ = await a_running_machine(records)
            neighbour, _, _ = await a_running_machine(records)
            made = [await a_ready_checkpoint(records, machine) for _ in range(4)]
            await a_ready_checkpoint(records, neighbour)
            assert await records.checkpoints.delete(made[1])
            assert [each.id for each in await records.checkpoints.list(machine.id)] == [made[3], made[2], made[0]]

    async def test_one_that_nothing_needs_is_deleted_for_good(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, _ = await a_running_machine(records)
            ready = await a_ready_checkpoint(records, machine)
            making = await records.checkpoints.begin(a_checkpoint(machine), node=node)
            for each in (ready, making.id):
                assert await records.checkpoints.delete(each)
                assert await records.checkpoints.delete(each), "it is deleted, however often one asks"
                assert await is_deleted(records, each)
            for call in (records.checkpoints.finish, records.checkpoints.begin):
                with pytest.raises(NotFoundError):
                    await call(making, node=node)

    async def test_what_a_machine_needs_is_not_deleted(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            checkpoint = await a_ready_checkpoint(records, machine)
            fork = await records.machines.create(a_machine(origin=checkpoint))
            await records.machines.change(
                machine.id,
                lambda found: lifecycle.end_checkpoint(
                    found, node, generation, checkpoint, LATER, number=1, has_memory=True
                ),
            )
            for needs_it in (machine, fork):
                assert not await records.checkpoints.delete(checkpoint)
                assert not await is_deleted(records, checkpoint)
                await remove(records, needs_it.id)
            assert await records.checkpoints.delete(checkpoint)

    async def test_the_parent_of_one_being_made_is_not_deleted(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, _, _ = await a_running_machine(records)
            parent = await a_ready_checkpoint(records, machine)
            child = await records.checkpoints.begin(a_checkpoint(machine, parent=parent), node=None)
            assert not await records.checkpoints.delete(parent)
            await records.checkpoints.finish(child, node=None)
            assert await records.checkpoints.delete(parent), "the child has all its packs itself"

    async def test_what_an_environment_starts_from_is_not_deleted(self, place: StorePlace) -> None:
        def without(environment: Environment) -> Environment:
            return environment.model_copy(update={"checkpoint": None})

        async with records_at(place) as records:
            machine, _, _ = await a_running_machine(records)
            checkpoint = await a_ready_checkpoint(records, machine)
            await records.environments.put(an_environment(checkpoint=checkpoint))
            assert not await records.checkpoints.delete(checkpoint)
            await records.environments.change("digest", without)
            assert await records.checkpoints.delete(checkpoint)

    async def test_none_is_deleted_while_somebody_begins_to_need_it(self, place: StorePlace) -> None:
        """However the two meet: one of them is refused."""
        async with records_at(place) as records, records_at(place) as others:
            machine, _, _ = await a_running_machine(records)
            for number in range(6):
                checkpoint = await a_ready_checkpoint(records, machine)
                needs: list[Callable[[], Awaitable[object]]] = [
                    partial(others.machines.create, a_machine(origin=checkpoint)),
                    partial(others.checkpoints.begin, a_checkpoint(machine, parent=checkpoint), node=None),
                    partial(others.environments.put, an_environment("e", f"digest {number}", checkpoint=checkpoint)),
                ]
                need = needs[number % 3]
                delete: Callable[[], Awaitable[object]] = partial(records.checkpoints.delete, checkpoint)
                answers = await at_once([delete, need])
                is_needed = isinstance(answers[1], Machine | Checkpoint | Environment)
                assert is_needed != answers[0]
                assert await is_deleted(records, checkpoint) == answers[0]

    async def test_one_that_is_overdue_is_given_up(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, _ = await a_running_machine(records)
            parent = await a_ready_checkpoint(records, machine)
            ready = await a_ready_checkpoint(records, machine)
            overdue = await records.checkpoints.begin(a_checkpoint(machine, parent=parent), node=node)
            in_time = await records.checkpoints.begin(
                a_checkpoint(machine, deadline_at=LATER + timedelta(microseconds=2)), node=node
            )
            assert await records.checkpoints.expire(LATER) == []
            assert await records.checkpoints.expire(LATER + timedelta(microseconds=1)) == [overdue.id]
            assert await records.checkpoints.expire(LATER + timedelta(microseconds=1)) == []
            assert {each.id for each in await records.checkpoints.list(machine.id)} == {parent, ready, in_time.id}
            with pytest.raises(NotFoundError):
                await records.checkpoints.finish(overdue, node=node)
            assert await records.checkpoints.delete(parent), "nothing pins it any more"

    async def test_the_living_are_those_that_are_ready_or_being_made(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            assert await records.checkpoints.living() == (frozenset(), frozenset())
            machine, _, _ = await a_running_machine(records)
            first = await a_ready_checkpoint(records, machine)
            second = await a_ready_checkpoint(records, machine)
            making = (await records.checkpoints.begin(a_checkpoint(machine), node=None)).id
            assert await records.checkpoints.living() == (frozenset({first, second}), frozenset({making}))
            await records.checkpoints.delete(first)
            assert await records.checkpoints.living() == (frozenset({second}), frozenset({making}))

    async def test_what_deleted_machines_left_is_abandoned_until_it_is_deleted_too(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, _, _ = await a_running_machine(records)
            other, _, _ = await a_running_machine(records)
            ready = await a_ready_checkpoint(records, machine)
            making = (await records.checkpoints.begin(a_checkpoint(machine), node=None)).id
            await a_ready_checkpoint(records, other)
            assert await records.checkpoints.abandoned() == []
            await records.machines.change(machine.id, lambda current: lifecycle.end_remove(current, LATER))
            assert await records.checkpoints.abandoned() == sorted([ready, making], reverse=True)
            for checkpoint in (making, ready):
                assert await records.checkpoints.delete(checkpoint)
            assert await records.checkpoints.abandoned() == []
