"""What every journal of effects promises: subclass `EffectsContract` and give it a `place` fixture."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from outlive.base import (
    ConflictError,
    EffectId,
    FencedError,
    InvalidError,
    MachineId,
    NodeId,
    NotFoundError,
    new_effect_id,
    new_machine_id,
    new_node_id,
)
from outlive.machine import lifecycle
from outlive.machine.records import EffectBegin, Records
from outlive.machine.status import Effect
from outlive.testing.conversations import StorePlace
from outlive.testing.machine_records import (
    AT,
    LATER,
    a_machine,
    a_running_machine,
    at_once,
    move,
    records_at,
)


async def begin(
    records: Records, machine: MachineId, node: NodeId, generation: int, *, effect: EffectId | None = None
) -> EffectBegin:
    effect = effect or new_effect_id()
    return await records.effects.begin(machine, effect, node=node, generation=generation, digest="digest", at=AT)


def ended(effect: Effect, **fields: object) -> Effect:
    return effect.model_copy(update={"state": "finished", "exit_code": 0, "ended_at": LATER, **fields})


class EffectsContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_an_effect_is_written_before_it_is_started(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            machine, node, generation = await a_running_machine(records)
            effect = new_effect_id()
            assert await records.effects.find(machine.id, effect) is None
            found, is_new = await begin(records, machine.id, node, generation, effect=effect)
            assert is_new
            assert found == Effect(
                machine=machine.id, id=effect, n=1, digest="digest", generation=1, state="started", started_at=AT
            )
            assert await others.effects.find(machine.id, effect) == found
            assert await others.effects.find(new_machine_id(), effect) is None

    async def test_begun_again_it_is_found_and_not_written_twice(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            first, _ = await begin(records, machine.id, node, generation)
            again = await begin(records, machine.id, node, generation, effect=first.id)
            assert again == (first, False)
            result = await records.effects.finish(ended(first))
            assert await begin(records, machine.id, node, generation, effect=first.id) == (result, False)
            assert await records.effects.list(machine.id, after=0, limit=10) == [result]

    async def test_begun_many_times_at_once_one_is_new(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            machine, node, generation = await a_running_machine(records)
            effect = new_effect_id()
            calls = [
                partial(begin, each, machine.id, node, generation, effect=effect) for each in (records, others) * 5
            ]
            answers = [each for each in await at_once(calls) if isinstance(each, EffectBegin)]
            assert sorted(each.is_new for each in answers) == [False] * 9 + [True]
            assert len({each.effect.model_dump_json() for each in answers}) == 1

    async def test_their_numbers_are_dense_however_they_are_begun(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            machine, node, generation = await a_running_machine(records)
            neighbour, _, _ = await a_running_machine(records, node)
            ids = [new_effect_id() for _ in range(8)] * 2  # each twice
            calls = [
                partial(begin, each, machine.id, node, generation, effect=effect)
                for each, effect in zip((records, others) * 8, ids, strict=True)
            ]
            assert not [each for each in await at_once(calls) if not isinstance(each, EffectBegin)]
            await begin(records, neighbour.id, node, generation)
            listed = await records.effects.list(machine.id, after=0, limit=100)
            assert [each.n for each in listed] == list(range(1, 9))
            assert {each.id for each in listed} == set(ids)
            assert await records.effects.mark(machine.id) == 8
            assert await records.effects.mark(neighbour.id) == 1
            assert await records.effects.mark(new_machine_id()) == 0

    async def test_those_without_a_result_are_told_in_their_order(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            neighbour, _, _ = await a_running_machine(records, node)
            first, over, last = [(await begin(records, machine.id, node, generation)).effect for _ in range(3)]
            await begin(records, neighbour.id, node, generation)
            await records.effects.finish(ended(over))
            await records.effects.forestall(machine.id, new_effect_id(), at=LATER)
            assert await records.effects.begun(machine.id) == [first, last]
            assert await records.effects.begun(new_machine_id()) == []

    async def test_the_same_id_for_another_request_is_refused(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            first, _ = await begin(records, machine.id, node, generation)
            for _ in range(2):
                with pytest.raises(ConflictError) as refused:
                    await records.effects.begin(
                        machine.id, first.id, node=node, generation=generation, digest="other", at=AT
                    )
                assert refused.value.code == "effect.other_request"
                await records.effects.finish(ended(first))

    async def test_what_was_used_up_begins_in_no_machine_and_what_had_begun_goes_on(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            begun, _ = await begin(records, machine.id, node, generation)
            never = new_effect_id()
            for effect in (begun.id, never) * 2:
                await records.effects.use_up(effect, at=AT)
            assert await begin(records, machine.id, node, generation, effect=begun.id) == (begun, False)
            later, _, _ = await a_running_machine(records, node)  # made after it
            for each in (machine, later):
                with pytest.raises(ConflictError) as refused:
                    await begin(records, each.id, node, generation, effect=never)
                assert refused.value.code == "effect.forestalled"
                assert await records.effects.find(each.id, never) is None
            assert await records.effects.mark(machine.id) == 1

    async def test_what_was_forestalled_is_over_whatever_the_machine_does(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            begun, _ = await begin(records, machine.id, node, generation)
            assert await records.effects.forestall(machine.id, begun.id, at=LATER) == begun
            idle = await records.machines.create(a_machine())  # it has no node yet
            assert await records.effects.forestall(new_machine_id(), begun.id, at=LATER) is None
            for each in (machine, idle):
                effect = new_effect_id()
                never = await records.effects.forestall(each.id, effect, at=LATER)
                assert never is not None
                assert (never.state, never.exit_code, never.ended_at) == ("finished", 130, LATER)
                assert await records.effects.forestall(each.id, effect, at=AT) == never
                assert await records.effects.find(each.id, effect) == never
                assert never in await records.effects.list(each.id, after=0, limit=10)
                with pytest.raises(ConflictError) as refused:
                    await begin(records, each.id, node, generation, effect=effect)
                assert refused.value.code == "effect.forestalled"

    async def test_of_a_beginning_and_its_forestalling_at_once_one_wins(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            machine, node, generation = await a_running_machine(records)
            for _ in range(10):
                effect = new_effect_id()
                calls: list[Callable[[], Awaitable[object]]] = [
                    partial(begin, records, machine.id, node, generation, effect=effect),
                    partial(others.effects.forestall, machine.id, effect, at=LATER),
                ]
                begun, found = await at_once(calls)
                assert isinstance(found, Effect)
                if isinstance(begun, EffectBegin):
                    assert (found, begun.is_new) == (begun.effect, True)
                else:
                    assert isinstance(begun, ConflictError)
                    assert found.is_over
            listed = await records.effects.list(machine.id, after=0, limit=100)
            assert [each.n for each in listed] == list(range(1, 11))

    async def test_only_who_has_the_running_machine_begins(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            idle = await records.machines.create(a_machine())
            running, _ = await begin(records, machine.id, node, generation)
            over = await records.effects.finish(ended((await begin(records, machine.id, node, generation)).effect))
            await move(records, machine.id, node, new_node_id())
            for effect in (new_effect_id(), running.id):
                with pytest.raises(FencedError) as refused:
                    await begin(records, machine.id, node, generation, effect=effect)
                assert refused.value.code == "machine.fenced"
            with pytest.raises(FencedError):
                await begin(records, idle.id, node, 0)
            assert await begin(records, machine.id, node, generation, effect=over.id) == (over, False)
            assert await records.effects.mark(machine.id) == 2, "a refused one has no number"

    async def test_a_paused_machine_begins_nothing(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            await records.machines.change(machine.id, lambda found: lifecycle.end_freeze(found, node, generation, AT))
            with pytest.raises(FencedError):
                await begin(records, machine.id, node, generation)

    async def test_nothing_begins_in_an_unknown_machine(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            with pytest.raises(NotFoundError) as refused:
                await begin(records, new_machine_id(), new_node_id(), 1)
            assert refused.value.code == "machine.unknown"

    async def test_no_zombie_begins_after_the_machine_has_moved(self, place: StorePlace) -> None:
        """However the two meet: what is begun in an old generation was begun before the new one."""
        async with records_at(place) as records, records_at(place) as others:
            for _ in range(5):
                machine, node, generation = await a_running_machine(records)
                marks: list[int] = []

                async def take_over(machine: MachineId = machine.id, node: NodeId = node) -> None:
                    await move(others, machine, node, new_node_id())
                    marks.append(await others.effects.mark(machine))  # noqa: B023  read before the next round

                zombies: list[Callable[[], Awaitable[object]]] = [
                    partial(begin, records, machine.id, node, generation) for _ in range(6)
                ]
                await at_once([*zombies[:3], take_over, *zombies[3:]])
                assert [await records.effects.mark(machine.id)] == marks

    async def test_the_first_result_stays(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            machine, node, generation = await a_running_machine(records)
            begun, _ = await begin(records, machine.id, node, generation)
            given = ended(begun, stdout="out\x00🧑‍🚀", stderr="err", truncated=True, stdout_blob="b3_1", cut_bytes=7)
            assert await records.effects.finish(given) == given
            other = ended(begun, state="timeout", exit_code=None, stdout="other")
            assert await others.effects.finish(other) == given
            assert await others.effects.find(machine.id, begun.id) == given

    async def test_of_results_at_once_all_hear_the_one_that_stays(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            machine, node, generation = await a_running_machine(records)
            begun, _ = await begin(records, machine.id, node, generation)
            calls = [
                partial(each.effects.finish, ended(begun, exit_code=code))
                for code, each in enumerate((records, others) * 4)
            ]
            assert await at_once(calls) == [await records.effects.find(machine.id, begun.id)] * 8

    async def test_a_result_changes_nothing_of_the_beginning(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            begun, _ = await begin(records, machine.id, node, generation)
            result = await records.effects.finish(ended(begun, n=77, digest="x", generation=9, started_at=LATER))
            assert result == ended(begun)
            assert await records.effects.find(machine.id, begun.id) == result

    async def test_there_is_no_result_of_what_was_not_begun_or_is_not_over(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            begun, _ = await begin(records, machine.id, node, generation)
            with pytest.raises(InvalidError):
                await records.effects.finish(begun)
            with pytest.raises(NotFoundError) as refused:
                await records.effects.finish(ended(begun, id=new_effect_id()))
            assert refused.value.code == "effect.unknown"
            assert await records.effects.find(machine.id, begun.id) == begun

    async def test_a_zombie_gives_no_result_of_what_goes_on_elsewhere(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            begun, _ = await begin(records, machine.id, node, generation)
            moved = await move(records, machine.id, node, new_node_id())
            with pytest.raises(FencedError):
                await records.effects.finish(ended(begun, exit_code=1), holder=(node, generation))
            assert moved.node is not None
            result = await records.effects.finish(ended(begun), holder=(moved.node, moved.generation))
            assert result.exit_code == 0
            assert await records.effects.finish(ended(begun, exit_code=1), holder=(node, generation)) == result

    async def test_pages_of_a_journal_are_all_of_it_in_order(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            begun = [(await begin(records, machine.id, node, generation)).effect for _ in range(7)]
            pages: list[Effect] = []
            while page := await records.effects.list(machine.id, after=pages[-1].n if pages else 0, limit=3):
                pages += page
            assert pages == begun
            assert await records.effects.list(machine.id, after=0, limit=0) == []

    async def test_what_is_above_a_mark_and_has_no_result_is_lost(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            neighbour, _, _ = await a_running_machine(records, node)
            await begin(records, neighbour.id, node, generation)
            held, over, kept, gone, last = [
                (await begin(records, machine.id, node, generation)).effect for _ in range(5)
            ]
            over = await records.effects.finish(ended(over))
            assert await records.effects.lose(machine.id, above=1, at=LATER, except_ids=[kept.id]) == [gone.id, last.id]
            lost = {"state": "lost", "ended_at": LATER}
            expected = [held, over, kept, gone.model_copy(update=lost), last.model_copy(update=lost)]
            assert await records.effects.list(machine.id, after=0, limit=10) == expected
            assert await records.effects.lose(machine.id, above=1, at=LATER, except_ids=[kept.id]) == []
            assert await records.effects.finish(ended(gone)) == expected[3], "lost stays lost"
            assert [each.state for each in await records.effects.list(neighbour.id, after=0, limit=9)] == ["started"]

    async def test_an_old_generation_loses_nothing_of_a_newer_one(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            begun = (await begin(records, machine.id, node, generation)).effect
            with pytest.raises(FencedError):
                await records.effects.lose(machine.id, above=0, at=LATER, holder=(node, generation - 1))
            assert await records.effects.find(machine.id, begun.id) == begun
            assert await records.effects.lose(machine.id, above=0, at=LATER, holder=(node, generation)) == [begun.id]
