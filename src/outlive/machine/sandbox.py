"""The port to the sandboxes of one host: what a machine runs in. Knows no records, no guests, no checkpoints' store.

Rule 1: every call may be repeated and may find anything: half-made, running, dead, gone. `destroy` always ends with
        nothing left: no process, no mount, no loop device, no cgroup, no directory.
Rule 2: sandboxes outlive the process that started them; `find_all` finds them again, from the disk and the kernel.
Rule 3: limits are read back from the kernel; a sandbox whose limits do not hold is destroyed (`sandbox.limits`).
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from outlive.base import MachineId
from outlive.machine.spec import Limits


class Footing(BaseModel):
    """What the memory of a sandbox stands on, from when it comes up until it ends: what the host has by the time that
    it is saved may be something else. Kept with it, and not understood here; empty: nobody knows."""

    model_config = ConfigDict(frozen=True)

    base_fingerprint: str = ""
    runtime_key: str = ""
    runsc_version: str = ""
    platform: str = ""


class SandboxPlan(NamedTuple):
    """All that is needed to make one."""

    machine: MachineId
    generation: int
    limits: Limits
    layers: tuple[Path, ...]  # of the base, topmost first
    runtime: Path  # what is at /.outlive in it
    argv: tuple[str, ...]  # of PID 1
    hostname: str
    is_read_only: bool = False
    footing: Footing = Footing()


class Sandbox(NamedTuple):
    """One that was prepared: its places. Made by `Sandboxes` alone."""

    machine: MachineId
    generation: int
    path: Path  # the directory of this generation; all else is below
    limits: Limits
    footing: Footing = Footing()

    @property
    def host_path(self) -> Path:
        """What the machine sees, read-only, at /run/outlive: the sockets it dials."""
        return self.path / "host"

    @property
    def upper_path(self) -> Path:
        """What differs from the base. Not to be touched while the sandbox runs."""
        return self.path / "disk" / "upper"

    @property
    def image_path(self) -> Path:
        """Where its memory is put by `save_memory`, and taken from by `restore`."""
        return self.path / "image"


SandboxState = Literal["prepared", "running", "paused", "frozen", "dead"]


class Usage(NamedTuple):
    memory_bytes: int
    cpu_s: float  # since it was started
    threads: int
    disk_bytes: int


class Guard(Protocol):
    """Who stops everything here, from outside, when nobody says in time that it may go on."""

    def now(self) -> float:
        """Of the clock that `until` is of: the host's, which neither jumps nor stops."""
        ...

    async def keep(self, until: float, *, may_run: bool) -> None:
        """Until then all sandboxes here may run; if not `may_run` they stand still now. After that moment they stand
        still, started ones and those yet to be started, also if this process is dead or stopped by then. On top of
        the freezes of each: both must be over for one to run."""
        ...


class Sandboxes(Protocol):
    def guarded(self) -> AbstractAsyncContextManager[Guard]:
        """`node.taken` (conflict) while another process has it. Leaving it changes nothing: the last word stands."""
        ...

    async def prepare(self, plan: SandboxPlan) -> Sandbox:
        """Directories, disk, bundle. Nothing runs and no overlay is mounted yet: `upper_path` is not there, so that a
        checkpoint can be fetched into it; `start` and `restore` make it if it is missing, and mount. One that was
        prepared and never started is made anew, empty; `sandbox.exists` (conflict) if it was started."""
        ...

    async def start(self, sandbox: Sandbox) -> None:
        """Boot it: PID 1 runs when this returns, and its limits were read back. `sandbox.dead` (conflict): it has
        lived. `sandbox.not_started` (broken): its first program cannot be run; it is as prepared."""
        ...

    async def restore(self, sandbox: Sandbox) -> None:
        """Start it from the memory at `image_path`. `sandbox.memory` (broken) if that cannot be: it is as prepared
        then, and may be booted with `start` instead."""
        ...

    async def pause(self, sandbox: Sandbox) -> None:
        """Stop every process in it, for a moment, so that memory and filesystem belong together."""
        ...

    async def resume(self, sandbox: Sandbox) -> None: ...

    async def save_memory(self, sandbox: Sandbox) -> None:
        """Write the memory of a paused one to `image_path` (emptied first). It stays paused and whole, whatever
        happens. `sandbox.memory` (broken) if it cannot be saved."""
        ...

    async def freeze(self, sandbox: Sandbox) -> None:
        """Take every CPU away, from outside. No other call but `thaw`, `state`, `usage` and `destroy` may come before
        `thaw`."""
        ...

    async def thaw(self, sandbox: Sandbox) -> None: ...

    async def state(self, sandbox: Sandbox) -> SandboxState: ...

    async def has_disk(self, sandbox: Sandbox) -> bool:
        """Whether what it has written is still there to be read. Not after the host was started again: a disk is of no
        use after that, and nothing here takes it up again."""
        ...

    async def usage(self, sandbox: Sandbox) -> Usage: ...

    async def destroy(self, sandbox: Sandbox) -> None: ...

    async def find_all(self) -> Sequence[Sandbox]:
        """Every one that has left anything here, whatever state it is in."""
        ...
