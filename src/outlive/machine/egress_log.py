"""The port to what was decided about a machine's connections to the outside: kept by its proxy, read by people."""

from collections.abc import Sequence
from typing import Protocol

from outlive.base import MachineId
from outlive.governance.egress_records import EgressDecision, EgressDecisions


class EgressRecords(EgressDecisions, Protocol):
    async def list(self, machine: MachineId, *, after: int, limit: int) -> Sequence[tuple[int, EgressDecision]]:
        """In the order they were stored, those with a number above `after`; numbers are dense from 1."""
        ...
