"""Who the guest of a test is told to be."""

import subprocess
from collections.abc import Callable

from outlive.base import MachineId
from outlive.machine.guest_link import Welcome

MACHINE = MachineId("mach_" + "1" * 32)

StartGuest = Callable[..., "subprocess.Popen[bytes]"]


def welcome(generation: int = 1, machine: str = MACHINE) -> Welcome:
    return Welcome(MachineId(machine), generation, "m1", "seed", {"FROM_WELCOME": "yes"})
