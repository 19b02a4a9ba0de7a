"""What every store of machines promises: subclass `MachineRecordsContract` and give it a `place` fixture."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest

from outlive.base import (
    ConflictError,
    InvalidError,
    NotFoundError,
    OperationId,
    UnavailableError,
    new_checkpoint_id,
    new_conversation_id,
    new_effect_id,
    new_machine_id,
    new_node_id,
    new_operation_id,
    new_principal_id,
)
from outlive.machine import lifecycle
from outlive.machine.lifecycle import NO_CHANGE, Change
from outlive.machine.records import MachineFilter, Records
from outlive.machine.spec import Limits, MachineSpec
from outlive.machine.status import Machine, MachineEvent
from outlive.testing.conversations import StorePlace
from outlive.testing.machine_records import (
    AT,
    LATER,
    a_checkpoint,
    a_machine,
    a_ready_checkpoint,
    a_running_machine,
    an_environment,
    at_once,
    records_at,
)
from outlive.testing.nodes import a_node

EVERY_ONE = MachineFilter(states=("starting", "running", "paused", "hibernated", "lost", "deleted"), is_warm=None)


def count_up(machine: Machine) -> Change:
    """A change that is lost if two are made from the same record."""
    event = MachineEvent(kind="failed", at=LATER, generation=0, data={"n": machine.checkpoints_wanted})
    return Change({"checkpoints_wanted": machine.checkpoints_wanted + 1}, (event,))


def claim(machine: Machine) -> Change:
    return Change({"name": "claimed", "changed_at": LATER})


async def claim_one(records: Records, operation: OperationId | None = None) -> Machine | None:
    return await records.machines.claim_warm("default", claim, operation=operation or new_operation_id())


def _just(change: Change, _: Machine) -> Change:
    return change


class MachineRecordsContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_a_machine_is_read_as_it_was_made(self, place: StorePlace) -> None:
        spec = MachineSpec(limits=Limits(cpus=0.5), egress=("a:1",), env={"A": "\x00🧑‍🚀"}, ports=(80,))
        made = a_machine(name="A\x00name 🧑‍🚀", conversation=new_conversation_id(), spec=spec, reason="why")
        async with records_at(place) as records, records_at(place) as others:
            assert await records.machines.create(made) == made
            assert await others.machines.get(made.id) == made
            [(n, event)] = await others.machines.events(made.id, after=0, limit=10)
            assert (n, event.kind, event.at) == (1, "created", AT)

    async def test_making_one_again_changes_nothing(self, place: StorePlace) -> None:
        made = a_machine(name="first")
        async with records_at(place) as records, records_at(place) as others:
            calls = [partial(each.machines.create, made) for each in (records, others) * 5]
            assert await at_once(calls) == [made] * 10
            assert await records.machines.create(made.model_copy(update={"name": "second"})) == made
            assert len(await records.machines.events(made.id, after=0, limit=10)) == 1

    async def test_what_is_no_text_is_refused(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            with pytest.raises(InvalidError):
                await records.machines.create(a_machine(name="\ud800"))
            assert await records.machines.list(EVERY_ONE, limit=10) == []

    async def test_an_unknown_machine_is_not_found(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            unknown = new_machine_id()
            for call in (
                partial(records.machines.get, unknown),
                partial(records.machines.change, unknown, count_up),
                partial(records.machines.events, unknown, after=0, limit=1),
            ):
                with pytest.raises(NotFoundError) as refused:
                    await call()
                assert refused.value.code == "machine.unknown"

    async def test_a_change_is_written_with_its_history(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.machines.create(a_machine())
            node = new_node_id()
            begun = await records.machines.change(made.id, lambda found: lifecycle.begin_up(found, node, LATER))
            assert (begun.node, begun.generation, begun.revision, begun.changed_at) == (node, 1, 1, LATER)
            up = await records.machines.change(
                made.id,
                lambda found: lifecycle.end_up(found, node, 1, LATER, base_key="base", is_cold=True),
            )
            assert (up.state, up.spec.base_key, up.revision) == ("running", "base", 2)
            assert await records.machines.get(made.id) == up
            events = await records.machines.events(made.id, after=1, limit=10)
            assert [(n, event.kind, event.data) for n, event in events] == [(2, "booted", {"node": node})]

    async def test_what_changes_nothing_is_no_new_revision(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.machines.create(a_machine())
            for change in (
                NO_CHANGE,
                Change({"changed_at": LATER}),
                Change({"desired": "running", "changed_at": LATER}),
            ):
                assert await records.machines.change(made.id, partial(_just, change)) == made
            assert await records.machines.get(made.id) == made

    async def test_a_refused_change_leaves_nothing(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.machines.create(a_machine(state="paused", desired="paused"))
            with pytest.raises(ConflictError) as refused:
                await records.machines.change(made.id, lambda found: lifecycle.ask(found, "hibernate", AT))
            assert refused.value.code == "machine.paused"
            assert await records.machines.get(made.id) == made
            assert (await records.machines.change(made.id, count_up)).revision == 1

    async def test_changes_at_once_never_lose_one(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            made = await records.machines.create(a_machine())
            await at_once([partial(each.machines.change, made.id, count_up) for each in (records, others) * 10])
            changed = await records.machines.get(made.id)
            assert (changed.checkpoints_wanted, changed.revision) == (20, 20)
            events = await records.machines.events(made.id, after=0, limit=100)
            assert [n for n, _ in events] == list(range(1, 22)), "dense"
            assert [event.data["n"] for _, event in events[1:]] == list(range(20)), "in the order of the changes"

    async def test_pages_of_a_history_are_all_of_it(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = await records.machines.create(a_machine())
            for _ in range(6):
                await records.machines.change(made.id, count_up)
            numbers: list[int] = []
            while page := await records.machines.events(made.id, after=numbers[-1] if numbers else 0, limit=3):
                numbers += [n for n, _ in page]
            assert numbers == [1, 2, 3, 4, 5, 6, 7]
            assert await records.machines.events(made.id, after=0, limit=0) == []

    async def test_pages_of_a_list_are_all_of_it_newest_first(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            made = [await records.machines.create(a_machine(name=str(n))) for n in range(7)]
            pages: list[Machine] = []
            while page := await records.machines.list(MachineFilter(), limit=3, before=pages[-1].id if pages else None):
                pages += page
            assert pages == made[::-1]
            assert await records.machines.list(MachineFilter(), limit=0) == []

    async def test_a_list_is_of_what_was_asked_for(self, place: StorePlace) -> None:
        owner, conversation, node = new_principal_id(), new_conversation_id(), new_node_id()
        async with records_at(place) as records:
            plain = (await records.machines.create(a_machine())).id
            owned = (await records.machines.create(a_machine(owner=owner))).id
            talking = (await records.machines.create(a_machine(conversation=conversation))).id
            other = (await records.machines.create(a_machine(environment="other"))).id
            placed = (await records.machines.create(a_machine(node=node, state="running"))).id
            warm = (await records.machines.create(a_machine(is_warm=True))).id
            gone = (await records.machines.create(a_machine(state="deleted"))).id
            for chosen, expected in {
                MachineFilter(): {plain, owned, talking, other, placed},
                MachineFilter(owner=owner): {owned},
                MachineFilter(conversation=conversation): {talking},
                MachineFilter(environment="other"): {other},
                MachineFilter(node=node): {placed},
                MachineFilter(node=node, owner=owner): set(),
                MachineFilter(is_warm=True): {warm},
                MachineFilter(states=("deleted",)): {gone},
                MachineFilter(states=("running", "deleted")): {placed, gone},
                MachineFilter(states=()): set(),
                EVERY_ONE: {plain, owned, talking, other, placed, warm, gone},
            }.items():
                assert {each.id for each in await records.machines.list(chosen, limit=100)} == expected, chosen

    async def test_a_list_follows_what_changes(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, _ = await a_running_machine(records)
            assert [each.id for each in await records.machines.list(MachineFilter(node=node), limit=9)] == [machine.id]
            await records.machines.change(
                machine.id, lambda found: lifecycle.declare_lost(found, node, AT, reason="gone")
            )
            assert await records.machines.list(MachineFilter(node=node), limit=9) == []
            [lost] = await records.machines.list(MachineFilter(states=("lost",)), limit=9)
            assert lost.id == machine.id

    async def test_no_warm_machine_is_given_to_two(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            made = {(await a_running_machine(records, is_warm=True))[0].id for _ in range(5)}
            calls = [partial(claim_one, each) for each in (records, others) * 4]
            claimed = [each for each in await at_once(calls) if isinstance(each, Machine)]
            assert sorted(each.id for each in claimed) == sorted(made)
            assert all((each.name, each.is_warm) == ("claimed", False) for each in claimed)
            assert await claim_one(records) is None

    async def test_only_a_running_warm_machine_of_the_environment_is_claimed(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            await records.machines.create(a_machine(is_warm=True))
            await records.machines.create(a_machine(is_warm=True, state="lost"))
            await a_running_machine(records)
            await a_running_machine(records, environment="other", is_warm=True)
            assert await claim_one(records) is None

    async def test_a_machine_that_is_to_go_or_was_stopped_is_not_claimed(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            gone, _, _ = await a_running_machine(records, is_warm=True)
            await records.machines.change(gone.id, lambda found: lifecycle.ask(found, "delete", AT))
            stopped, _, _ = await a_running_machine(records, is_warm=True)
            await records.machines.change(stopped.id, lambda found: lifecycle.ask(found, "pause", AT))
            assert await claim_one(records) is None

    async def test_a_machine_of_a_node_without_a_lease_is_not_claimed(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, _ = await a_running_machine(records, is_warm=True)
            await records.nodes.renew(a_node(node), lease_s=-1)
            assert await claim_one(records) is None
            await records.nodes.renew(a_node(node), lease_s=60)
            claimed = await claim_one(records)
            assert claimed is not None
            assert claimed.id == machine.id

    async def test_an_operation_that_claims_again_gets_the_same_machine(self, place: StorePlace) -> None:
        operation = new_operation_id()
        async with records_at(place) as records, records_at(place) as others:
            for _ in range(3):
                await a_running_machine(records, is_warm=True)
            calls = [partial(claim_one, each, operation) for each in (records, others) * 3]
            claimed = [each for each in await at_once(calls) if isinstance(each, Machine)]
            assert len(claimed) == 6
            assert {(each.id, each.claimed_by) for each in claimed} == {(claimed[0].id, operation)}
            assert len(await records.machines.list(MachineFilter(is_warm=True), limit=9)) == 2
            again = await records.machines.claim_warm("other", claim, operation=operation)
            assert again == claimed[0]

    async def test_a_refused_claim_leaves_the_machine_in_its_pool(self, place: StorePlace) -> None:
        def refuse(machine: Machine) -> Change:
            raise ConflictError("test.refused", "No.")

        async with records_at(place) as records:
            machine, _, _ = await a_running_machine(records, is_warm=True)
            with pytest.raises(ConflictError):
                await records.machines.claim_warm("default", refuse, operation=new_operation_id())
            claimed = await claim_one(records)
            assert claimed is not None
            assert claimed.id == machine.id

    async def test_a_record_refers_only_to_checkpoints_that_are_ready(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, node, generation = await a_running_machine(records)
            ready, unknown = await a_ready_checkpoint(records, machine), new_checkpoint_id()
            for refused in (
                partial(records.machines.create, a_machine(origin=unknown)),
                partial(
                    records.machines.change,
                    machine.id,
                    lambda found: lifecycle.end_checkpoint(
                        found, node, generation, unknown, AT, number=1, has_memory=True
                    ),
                ),
            ):
                with pytest.raises(NotFoundError) as error:
                    await refused()
                assert error.value.code == "checkpoint.unknown"
            assert await self._ids(records) == {machine.id}
            fork = await records.machines.create(a_machine(origin=ready))
            await records.machines.change(
                machine.id,
                lambda found: lifecycle.end_checkpoint(found, node, generation, ready, AT, number=1, has_memory=True),
            )
            assert await self._ids(records) == {machine.id, fork.id}

    async def _ids(self, records: Records) -> set[str]:
        return {each.id for each in await records.machines.list(MachineFilter(), limit=10)}

    async def test_records_that_are_away_say_so(self, place: StorePlace) -> None:
        """All of them: it is one database."""
        async with records_at(place) as records:
            made, node, generation = await a_running_machine(records)
            await records.environments.put(an_environment())
        async with records_at(place, is_patient=False) as records:
            refused: list[Callable[[], Awaitable[object]]] = [
                partial(records.machines.change, made.id, count_up),
                partial(records.machines.claim_warm, "default", claim, operation=new_operation_id()),
                partial(
                    records.effects.begin, made.id, new_effect_id(), node=node, generation=generation, digest="d", at=AT
                ),
                partial(records.checkpoints.begin, a_checkpoint(made), node=node),
                partial(records.nodes.forget, node),
                partial(records.environments.change, "digest", lambda found: found.model_copy(update={"warm": 1})),
            ]
            async with place.away():
                for call in refused:
                    with pytest.raises(UnavailableError):
                        await call()
                with suppress(UnavailableError):  # what can be read without writing may still be read
                    assert await records.machines.get(made.id) == made
            assert await records.machines.get(made.id) == made
            assert await records.effects.mark(made.id) == 0
            assert await records.checkpoints.list(made.id) == []
            assert await records.environments.get("env") == an_environment()
