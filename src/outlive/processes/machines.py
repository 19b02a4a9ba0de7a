"""Whether this host can run machines, and if not, why: so that a person is told instead of left to wonder."""

import os
import shutil
from typing import Literal, NamedTuple

from outlive.base import InvalidError
from outlive.wiring.settings import Settings


class Machines(NamedTuple):
    is_on: bool
    why: str  # in a few words, either way


def decide_machines(
    enabled: Literal["auto", "on", "off"], *, is_root: bool, runsc: str, runsc_path: str | None
) -> Machines:
    """Pure. `runsc` as the settings name it, `runsc_path` where it was found. Raises `invalid` if they have to be on
    and cannot be."""
    if enabled == "off":
        return Machines(False, "the setting machines.enabled is off")
    troubles = []
    if not is_root:
        troubles.append("this process is not root, and sandboxes need it")
    if runsc_path is None:
        troubles.append(f"gVisor's {runsc!r} is not installed")
    if not troubles:
        return Machines(True, f"with {runsc_path}")
    why = "; ".join(troubles)
    if enabled == "on":
        raise InvalidError("machines.impossible", f"Machines cannot run here: {why}. Mend it, or set machines.enabled.")
    return Machines(False, why)


def look_for_machines(settings: Settings) -> Machines:
    given = settings.machines
    return decide_machines(
        given.enabled, is_root=os.geteuid() == 0, runsc=given.runsc, runsc_path=shutil.which(given.runsc)
    )
