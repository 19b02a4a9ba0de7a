"""What every store of decisions on egress promises: subclass `EgressRecordsContract` with an `egress` fixture."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pytest

from outlive.base import MachineId, new_machine_id
from outlive.governance.egress_records import EgressDecision
from outlive.machine.egress_log import EgressRecords
from outlive.testing.machine_records import AT, at_once


def decisions(machine: MachineId, count: int, *, run: int = 0) -> Sequence[EgressDecision]:
    at = AT + timedelta(seconds=run)
    return [
        EgressDecision(machine, at, number, "CONNECT", "a\x00b.example", 443, "denied", "why", "192.0.2.7", 1, 1 << 40)
        for number in range(count)
    ]


class EgressRecordsContract:
    @pytest.fixture
    def egress(self) -> EgressRecords:
        raise NotImplementedError("give me a store")

    async def test_what_was_decided_is_listed_in_order_page_by_page(self, egress: EgressRecords) -> None:
        machine, neighbour = new_machine_id(), new_machine_id()
        stored = [*decisions(machine, 5), *decisions(machine, 2, run=1)]
        await egress.store([*stored[:3], *decisions(neighbour, 1)])
        await egress.store(stored[3:])
        pages: list[tuple[int, EgressDecision]] = []
        while page := await egress.list(machine, after=pages[-1][0] if pages else 0, limit=3):
            pages += page
        assert pages == list(enumerate(stored, 1))
        assert await egress.list(neighbour, after=0, limit=9) == [(1, decisions(neighbour, 1)[0])]
        assert await egress.list(new_machine_id(), after=0, limit=9) == []
        assert await egress.list(machine, after=0, limit=0) == []

    async def test_what_comes_twice_is_kept_once(self, egress: EgressRecords) -> None:
        machine = new_machine_id()
        allowed = [each._replace(verdict="allowed", address=None) for each in decisions(machine, 2)]
        await egress.store(allowed)
        await egress.store([*allowed, *decisions(machine, 2)])
        await egress.store([])
        assert await egress.list(machine, after=0, limit=9) == list(enumerate([*allowed, *decisions(machine, 2)], 1))

    async def test_those_who_store_at_once_lose_nothing(self, egress: EgressRecords) -> None:
        machine = new_machine_id()
        answers = await at_once([partial(egress.store, decisions(machine, 3, run=run)) for run in range(8)])
        assert answers == [None] * 8, answers
        listed = await egress.list(machine, after=0, limit=100)
        assert [n for n, _ in listed] == list(range(1, 25)), [(n, each.at, each.connection) for n, each in listed]
        assert {each.at for _, each in listed} == {AT + timedelta(seconds=run) for run in range(8)}
