"""`sandbox.json`: what is written down about one sandbox, and what state follows from it and from the kernel. Pure.

The record says how far we came; the kernel says what is true now. A phase is written *before* the step it names
begins, so whoever finds the record after a crash knows what may be half-done.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from outlive.machine.sandbox import Footing, SandboxState
from outlive.machine.spec import Limits

# making: directories and mounts may be missing. prepared: nothing runs. starting: processes may be anywhere.
# started: `processes` holds those without which it is dead.
Phase = Literal["making", "prepared", "starting", "started"]


class Process(BaseModel):
    """A pid and the moment it started: a pid that is used again is never mistaken for the old one."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: int  # clock ticks since the boot
    boot: str


class SandboxRecord(BaseModel):
    """One generation of one machine, as it lies on the disk."""

    model_config = ConfigDict(frozen=True)

    machine: str
    generation: int
    limits: Limits
    phase: Phase
    layers: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    footing: Footing = Footing()


def decide_state(phase: Phase, *, is_mounted: bool, is_alive: bool, is_frozen: bool, is_paused: bool) -> SandboxState:
    """`is_alive`: every process of the record lives. One that was being started when its maker died is dead."""
    if not is_mounted or phase in ("making", "starting"):
        return "dead"
    if phase == "prepared":
        return "prepared"
    if not is_alive:
        return "dead"
    if is_frozen:
        return "frozen"
    return "paused" if is_paused else "running"
