"""What every store of terminals promises: subclass `TerminalRecordsContract` and give it a `place` fixture."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from outlive.base import (
    BrokenError,
    ConflictError,
    FencedError,
    MachineId,
    NotFoundError,
    UnavailableError,
    new_machine_id,
    new_node_id,
    new_principal_id,
    new_terminal_id,
)
from outlive.machine import lifecycle
from outlive.machine.records import Records
from outlive.machine.status import Machine
from outlive.machine.terminal.status import Epoch, Lease, Seam, Segment, Terminal
from outlive.testing.conversations import StorePlace
from outlive.testing.machine_records import AT, LATER, a_machine, a_running_machine, at_once, move, records_at


def a_terminal(machine: MachineId | None = None, **fields: Any) -> Terminal:
    made = new_terminal_id()
    known = {"id": made, "machine": machine or new_machine_id(), "name": made, "owner": new_principal_id()}
    return Terminal.model_validate(known | {"created_at": AT, "changed_at": AT} | fields)


def a_lease(**fields: Any) -> Lease:
    known = {"operator": new_principal_id(), "name": "ada", "kind": "person", "since": AT, "how": "take", "offset": 7}
    return Lease.model_validate(known | fields)


def a_segment(terminal: Terminal, n: int, start: int, end: int, **fields: Any) -> Segment:
    known = {"terminal": terminal.id, "n": n, "start": start, "end": end, "begun_at": AT, "ended_at": LATER}
    return Segment.model_validate(known | {"key": f"terminals/{terminal.id}/{n}", "size": 10} | fields)


def further(terminal: Terminal) -> Terminal:
    return terminal.model_copy(update={"reserved_to": terminal.reserved_to + 1, "changed_at": LATER})


def later(terminal: Terminal) -> Terminal:
    return terminal.model_copy(update={"changed_at": LATER})


def called(title: str, terminal: Terminal) -> Terminal:
    return terminal.model_copy(update={"title": title})


async def delete(records: Records, machine: Machine) -> Machine:
    await records.machines.change(machine.id, lambda found: lifecycle.ask(found, "delete", AT))
    return await records.machines.change(machine.id, lambda found: lifecycle.end_remove(found, LATER))


class TerminalRecordsContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    # ── records ──

    async def test_a_record_is_kept_as_it_was_given(self, place: StorePlace) -> None:
        given = a_terminal(
            origin=new_terminal_id(),
            command=("bash", "-c", "ö\x1b"),
            lease=a_lease(),
            epoch=Epoch(generation=3, base=2**40, anchor=5),
            seams=(Seam(start=1, at=2**40, generation=3),),
            reserved_to=2**40 + 1,
            recorded_to=9,
            title="🧑‍🚀\x00",
        )
        async with records_at(place) as records:
            assert await records.terminals.create(given) == given
        async with records_at(place) as others:
            assert await others.terminals.get(given.id) == given

    async def test_made_again_it_is_the_one_that_is_there(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            given = a_terminal()
            calls = [partial(each.terminals.create, given) for each in (records, others) * 4]
            assert await at_once(calls) == [given] * 8
            changed = await records.terminals.change(given.id, further)
            assert await others.terminals.create(given) == changed
            assert await others.terminals.list(given.machine) == [changed]

    async def test_a_name_that_is_taken_in_a_machine_is_refused(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            first = await records.terminals.create(a_terminal(name="shell"))
            with pytest.raises(ConflictError) as refused:
                await records.terminals.create(a_terminal(first.machine, name="shell"))
            assert refused.value.code == "terminal.name_taken"
            await records.terminals.create(a_terminal(name="shell"))

    async def test_of_many_that_ensure_a_name_one_record_is_there(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            machine = new_machine_id()
            calls = [
                partial(each.terminals.ensure, a_terminal(machine, name="shell")) for each in (records, others) * 4
            ]
            answers = await at_once(calls)
            assert answers == [answers[0]] * 8
            assert await records.terminals.list(machine) == [answers[0]]
            other = await records.terminals.ensure(a_terminal(name="shell"))
            assert other != answers[0]

    async def test_an_unknown_one_is_not_found(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            unknown = a_terminal()
            calls: list[Callable[[], Awaitable[object]]] = [
                partial(records.terminals.get, unknown.id),
                partial(records.terminals.change, unknown.id, further),
                partial(records.terminals.add_segment, a_segment(unknown, 1, 0, 5), recorded_to=5),
            ]
            for error in await at_once(calls):
                assert isinstance(error, NotFoundError)
                assert error.code == "terminal.unknown"
            assert await records.terminals.list(unknown.machine) == []
            assert await records.terminals.segments(unknown.id, limit=10) == []

    async def test_a_list_is_of_the_machine_oldest_first(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine = new_machine_id()
            made = [await records.terminals.create(a_terminal(machine)) for _ in range(4)]
            await records.terminals.create(a_terminal())
            ended = await records.terminals.change(
                made[1].id, lambda found: found.model_copy(update={"state": "exited", "exit_code": 3})
            )
            assert await records.terminals.list(machine) == [made[0], ended, made[2], made[3]]
            assert await records.terminals.list(machine, include_ended=False) == [made[0], made[2], made[3]]

    # ── changes ──

    async def test_changes_at_once_never_lose_one(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            made = await records.terminals.create(a_terminal())
            await at_once([partial(each.terminals.change, made.id, further) for each in (records, others) * 10])
            changed = await records.terminals.get(made.id)
            assert (changed.reserved_to, changed.revision, changed.changed_at) == (20, 20, LATER)

    async def test_what_changes_nothing_is_no_new_revision(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.terminals.create(a_terminal())
            assert await records.terminals.change(made.id, lambda found: found) == made
            assert await records.terminals.change(made.id, later) == made
            assert await records.terminals.get(made.id) == made

    async def test_a_refused_change_leaves_nothing(self, place: StorePlace) -> None:
        def refuse(terminal: Terminal) -> Terminal:
            raise ConflictError("test.refused", "No.")

        async with records_at(place) as records:
            made = await records.terminals.create(a_terminal())
            with pytest.raises(ConflictError):
                await records.terminals.change(made.id, refuse)
            assert await records.terminals.get(made.id) == made
            assert (await records.terminals.change(made.id, further)).revision == 1

    async def test_what_a_terminal_is_never_changes(self, place: StorePlace) -> None:
        fields: list[dict[str, object]] = [
            {"id": new_terminal_id()},
            {"machine": new_machine_id()},
            {"name": "other"},
            {"owner": new_principal_id()},
            {"segments": 1},
        ]
        async with records_at(place) as records:
            made = await records.terminals.create(a_terminal())
            for each in fields:
                with pytest.raises(BrokenError):
                    await records.terminals.change(made.id, lambda found: found.model_copy(update=each))  # noqa: B023
            assert await records.terminals.get(made.id) == made

    async def test_no_zombie_changes_anything_after_the_machine_has_moved(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            old = (node, generation)
            made = await records.terminals.create(a_terminal(machine.id), holder=old)
            changed = await records.terminals.change(made.id, further, holder=old)
            moved = await move(records, machine.id, node, new_node_id())
            calls: list[Callable[[], Awaitable[object]]] = [
                partial(records.terminals.create, a_terminal(machine.id), holder=old),
                partial(records.terminals.ensure, a_terminal(machine.id), holder=old),
                partial(records.terminals.change, made.id, further, holder=old),
                partial(records.terminals.add_segment, a_segment(made, 1, 0, 5), recorded_to=5, holder=old),
                partial(records.terminals.close_all, machine.id, at=LATER, reason="over", holder=old),
            ]
            for error in await at_once(calls):
                assert isinstance(error, FencedError)
                assert error.code == "machine.fenced"
            assert await records.terminals.list(machine.id) == [changed]
            assert moved.node is not None
            again = await records.terminals.change(made.id, further, holder=(moved.node, moved.generation))
            assert again.reserved_to == 2

    async def test_however_a_zombie_and_the_move_meet_nothing_is_written_after_it(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            for _ in range(5):
                machine, node, generation = await a_running_machine(records)
                made = await records.terminals.create(a_terminal(machine.id))
                seen: list[int] = []

                async def take_over(machine: Machine = machine, made: Terminal = made, seen: list[int] = seen) -> None:
                    await move(others, machine.id, machine.node or new_node_id(), new_node_id())
                    seen.append((await others.terminals.get(made.id)).revision)

                zombie = partial(records.terminals.change, made.id, further, holder=(node, generation))
                zombies: list[Callable[[], Awaitable[object]]] = [zombie] * 3
                await at_once([*zombies, take_over, *zombies])
                assert [(await records.terminals.get(made.id)).revision] == seen

    async def test_a_machine_that_is_deleted_closes_its_terminals(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine = await records.machines.create(a_machine(state="hibernated", desired="hibernated"))
            held = await records.terminals.create(a_terminal(machine.id, lease=a_lease()))
            ended = await records.terminals.create(a_terminal(machine.id, state="exited", exit_code=0))
            other = await records.terminals.create(a_terminal())
            assert (await delete(records, machine)).state == "deleted"
            closed = await records.terminals.get(held.id)
            assert (closed.state, closed.lease, closed.ended_at) == ("closed", None, LATER)
            assert closed.reason
            assert await records.terminals.get(ended.id) == ended
            assert await records.terminals.get(other.id) == other

    async def test_all_open_terminals_of_a_machine_are_closed_at_once(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine = new_machine_id()
            made = [await records.terminals.create(a_terminal(machine, lease=a_lease())) for _ in range(3)]
            lost = await records.terminals.create(a_terminal(machine, state="lost"))
            closed = await records.terminals.close_all(machine, at=LATER, reason="over")
            assert [(each.id, each.state, each.lease, each.reason) for each in closed] == [
                (each.id, "closed", None, "over") for each in made
            ]
            assert await records.terminals.list(machine) == [*closed, lost]
            assert await records.terminals.close_all(machine, at=LATER, reason="again") == []

    # ── segments ──

    async def test_a_segment_moves_what_is_recorded(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            made = await records.terminals.create(a_terminal(reserved_to=100))
            first = a_segment(made, 1, 0, 40, input_end=3, generation=2)
            assert await records.terminals.add_segment(first, recorded_to=40) == first
            second = a_segment(made, 2, 40, 60)
            assert await records.terminals.add_segment(second, recorded_to=60, reserved_to=60) == second
            found = await others.terminals.get(made.id)
            assert (found.segments, found.recorded_to, found.reserved_to, found.revision) == (2, 60, 60, 2)
            assert await others.terminals.segments(made.id, limit=10) == [first, second]

    async def test_of_segments_with_the_same_number_the_first_stays(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            made = await records.terminals.create(a_terminal())
            calls = [
                partial(each.terminals.add_segment, a_segment(made, 1, 0, end), recorded_to=end)
                for end, each in enumerate((records, others) * 4, 1)
            ]
            answers = await at_once(calls)
            assert answers == [answers[0]] * 8
            found = await records.terminals.get(made.id)
            stored = await records.terminals.segments(made.id, limit=10)
            assert stored == [answers[0]]
            assert (found.segments, found.recorded_to) == (1, stored[0].end)

    async def test_a_segment_without_the_one_before_it_is_refused(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.terminals.create(a_terminal())
            await records.terminals.add_segment(a_segment(made, 1, 0, 5), recorded_to=5)
            before = await records.terminals.get(made.id)
            with pytest.raises(ConflictError) as refused:
                await records.terminals.add_segment(a_segment(made, 3, 5, 9), recorded_to=9)
            assert refused.value.code == "terminal.segment_hole"
            assert await records.terminals.get(made.id) == before
            assert len(await records.terminals.segments(made.id, limit=10)) == 1

    async def test_what_is_recorded_never_goes_back(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.terminals.create(a_terminal(recorded_to=50))
            await records.terminals.add_segment(a_segment(made, 1, 0, 5), recorded_to=5)
            assert (await records.terminals.get(made.id)).recorded_to == 50

    async def test_segments_are_found_by_where_they_reach(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.terminals.create(a_terminal())
            ranges = [(0, 0), (0, 10), (10, 10), (10, 25), (100, 140)]  # some hold only what was typed; then a seam
            for n, (start, end) in enumerate(ranges, 1):
                await records.terminals.add_segment(a_segment(made, n, start, end), recorded_to=end)
            for start, expected in {
                0: [1, 2, 3, 4, 5],
                1: [2, 3, 4, 5],
                9: [2, 3, 4, 5],
                10: [3, 4, 5],
                11: [4, 5],
                25: [5],
                139: [5],
                140: [],
            }.items():
                found = await records.terminals.segments(made.id, start=start, limit=10)
                assert [each.n for each in found] == expected, start

    async def test_pages_of_segments_are_all_of_them_in_order(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.terminals.create(a_terminal())
            for n in range(1, 12):
                await records.terminals.add_segment(a_segment(made, n, n // 2, (n + 1) // 2), recorded_to=n)
            numbers: list[int] = []
            while page := await records.terminals.segments(made.id, after=numbers[-1] if numbers else 0, limit=4):
                numbers += [each.n for each in page]
            assert numbers == list(range(1, 12))
            assert await records.terminals.segments(made.id, limit=0) == []

    async def test_records_that_are_away_say_so(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.terminals.create(a_terminal())
        async with records_at(place, is_patient=False) as records:
            calls: list[Callable[[], Awaitable[object]]] = [
                partial(records.terminals.create, a_terminal()),
                partial(records.terminals.change, made.id, further),
                partial(records.terminals.add_segment, a_segment(made, 1, 0, 5), recorded_to=5),
            ]
            async with place.away():
                for call in calls:
                    with pytest.raises(UnavailableError):
                        await call()
            assert await records.terminals.get(made.id) == made
            assert await records.terminals.change(made.id, partial(called, "back")) != made
