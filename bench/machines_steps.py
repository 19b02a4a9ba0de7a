"""Where the time of a step in a machine's life goes: what Temporal wrote down of the workflow, beside our own clock."""

import time
from dataclasses import dataclass, field
from itertools import pairwise

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from bench.measure import Section

# In order; together they are all of the time that the caller waited.
PARTS = (
    "step: API, until the workflow is there",
    "step: workflow, until the node begins",
    "step: node",
    "step: workflow, until it ends",
    "step: API, until the answer",
)
_DO, _DONE = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
_BEGUN, _ENDED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED


@dataclass
class Steps:
    """The parts of many calls, in milliseconds."""

    client: Client
    taken: list[tuple[float, ...]] = field(default_factory=list)

    async def note(self, machine: str, taken_s: float) -> None:
        """Of the call about this machine that has answered just now, `taken_s` after it was made."""
        answered_at = time.time()
        stamps = {}
        async for event in self.client.get_workflow_handle(machine).fetch_history_events():
            if event.event_type in (_BEGUN, _DO, _DONE, _ENDED):
                stamps[event.event_type] = event.event_time.ToNanoseconds() / 1e9
        moments = [answered_at - taken_s, *(stamps[kind] for kind in (_BEGUN, _DO, _DONE, _ENDED)), answered_at]
        self.taken.append(tuple((b - a) * 1000 for a, b in pairwise(moments)))

    def add_to(self, section: Section, unit: str) -> None:
        """All but the first, which warmed up."""
        for at, name in enumerate(PARTS):
            section.add(name, unit, [parts[at] for parts in self.taken[1:]])
