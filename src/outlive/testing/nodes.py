"""What every store of nodes promises: subclass `NodesContract` and give it a `place` fixture."""

from datetime import UTC, datetime

import pytest

from outlive.base import NodeId, NotFoundError, new_node_id
from outlive.machine import lifecycle
from outlive.machine.records import Gone
from outlive.machine.status import Machine, Node
from outlive.testing.conversations import StorePlace
from outlive.testing.machine_records import AT, a_running_machine, records_at

LONG_AGO = datetime(1999, 12, 31, tzinfo=UTC)


def a_node(node: NodeId | None = None, **fields: object) -> Node:
    """What it says of its own lease counts for nothing."""
    known = {"id": node or new_node_id(), "address": "unix:/a/node.sock", "lease_until": LONG_AGO, "started_at": AT}
    return Node.model_validate(known | fields)


class NodesContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_a_node_is_known_by_its_last_word(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            first = (await records.nodes.renew(a_node(capacity={"memory_mib": 512.5}), lease_s=20)).node
            assert await others.nodes.get(first.id) == first
            said = a_node(first.id, address="https://host:1", is_draining=True, capacity={})
            second = (await records.nodes.renew(said, lease_s=20)).node
            assert second == said.model_copy(update={"lease_until": second.lease_until})
            assert second.lease_until >= first.lease_until
            assert await others.nodes.get(first.id) == second
            assert await others.nodes.list() == [second]

    async def test_a_lease_is_reckoned_by_the_databases_clock(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            short = (await records.nodes.renew(a_node(), lease_s=10)).node
            long = (await records.nodes.renew(a_node(), lease_s=70)).node
            assert 60 <= (long.lease_until - short.lease_until).total_seconds() < 90
            assert short.lease_until > LONG_AGO

    async def test_a_node_is_gone_when_its_lease_and_the_margin_are_over(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            node = (await records.nodes.renew(a_node(), lease_s=60)).node.id
            assert not await records.nodes.is_gone(node, margin_s=0)
            await records.nodes.renew(a_node(node), lease_s=-60)
            assert await records.nodes.is_gone(node, margin_s=0)
            assert await records.nodes.is_gone(node, margin_s=59.5)
            assert not await records.nodes.is_gone(node, margin_s=120)
            await records.nodes.renew(a_node(node), lease_s=60)
            assert not await records.nodes.is_gone(node, margin_s=0), "it is back"

    async def test_whoever_renews_a_lease_that_was_over_is_told(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            new = await records.nodes.renew(a_node(), lease_s=60)
            assert new.was_over, "it never had one"
            assert not (await records.nodes.renew(new.node, lease_s=-1)).was_over
            assert (await records.nodes.renew(new.node, lease_s=60)).was_over
            assert not (await records.nodes.renew(new.node, lease_s=60)).was_over

    async def test_a_node_that_was_never_there_is_gone(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            unknown = new_node_id()
            assert await records.nodes.is_gone(unknown, margin_s=1_000)
            with pytest.raises(NotFoundError) as refused:
                await records.nodes.get(unknown)
            assert refused.value.code == "node.unknown"

    async def test_a_forgotten_node_is_gone_at_once(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            node, other = [(await records.nodes.renew(a_node(), lease_s=60)).node.id for _ in range(2)]
            for _ in range(2):
                assert await records.nodes.forget(node)
            assert await records.nodes.is_gone(node, margin_s=1_000)
            assert [each.id for each in await records.nodes.list()] == [other]

    async def test_a_node_is_forgotten_only_when_it_has_been_away_for_long_and_has_no_machine(
        self, place: StorePlace
    ) -> None:
        async with records_at(place) as records:
            machine, holds, _ = await a_running_machine(records)
            lives, away, empty = [(await records.nodes.renew(a_node(), lease_s=s)).node.id for s in (60, -60, -200)]
            await records.nodes.renew(a_node(holds), lease_s=-200)
            forgotten = {node: await records.nodes.forget(node, margin_s=100) for node in (lives, away, empty, holds)}
            assert forgotten == {lives: False, away: False, empty: True, holds: False}
            assert not await records.nodes.forget(holds), "whatever its lease"
            await records.machines.change(
                machine.id, lambda found: lifecycle.declare_lost(found, holds, AT, reason="x")
            )
            assert await records.nodes.forget(holds)
            assert {each.id for each in await records.nodes.list()} == {lives, away}

    async def test_a_machine_is_taken_from_a_node_only_if_that_is_gone_at_the_very_moment(
        self, place: StorePlace
    ) -> None:
        async with records_at(place) as records:
            machine, node, _ = await a_running_machine(records)
            await records.nodes.renew(a_node(node), lease_s=-60)
            assert await records.nodes.is_gone(node, margin_s=30)
            await records.nodes.renew(a_node(node), lease_s=60)  # between the look and the deed it is back

            def take(current: Machine) -> lifecycle.Change:
                return lifecycle.declare_lost(current, node, AT, reason="gone")

            kept = await records.machines.change(machine.id, take, gone=Gone(node, margin_s=30))
            assert (kept.state, kept.node, kept.generation) == ("running", node, machine.generation)
            await records.nodes.renew(a_node(node), lease_s=-60)
            taken = await records.machines.change(machine.id, take, gone=Gone(node, margin_s=30))
            assert (taken.state, taken.node) == ("lost", None)
