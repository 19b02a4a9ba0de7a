"""The words that a machine's workflow, the worker and the nodes say to each other through Temporal. A wire format.

Names are never renamed; shapes only gain fields with defaults. Only references pass: ids, generations, reasons.
"""

from typing import Final

from pydantic import BaseModel, ConfigDict

from outlive.base import MachineId
from outlive.machine.lifecycle import Step

SETTLE: Final = "machine.settle"  # the workflow; its id is the machine's
PLAN: Final = "machine.plan"
FAIL: Final = "machine.fail"
FORGET: Final = "machine.forget"  # remove one that is on no node

STEP_ACTIVITIES: Final[dict[Step, str]] = {
    "boot": "machine.boot",
    "wake": "machine.wake",
    "freeze": "machine.freeze",
    "thaw": "machine.thaw",
    "checkpoint": "machine.checkpoint",
    "hibernate": "machine.hibernate",
    "remove": "machine.remove",
    "declare_lost": "machine.declare_lost",
}

NO_ROOM: Final = "node.full"  # the code of a node's refusal: another one may have room


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Plan(_Message):
    """What to do next, by which activity and on which queue; no activity: nothing is left to do."""

    step: Step | None = None
    activity: str | None = None
    queue: str | None = None
    is_placed: bool = False  # any node with room may take it


class Task(_Message):
    """The argument of every step."""

    machine: MachineId


class Failure(_Message):
    """A step that failed for good."""

    machine: MachineId
    step: Step
    reason: str
