"""How runsc is called: the same flags every time, an own state directory, a deadline for each command.

Traps that are dealt with here, and only here:
- an id is resolved by its prefix, so ids have one length (`container_id`);
- a command to a frozen sandbox hangs: the caller thaws first, and the deadline is the net;
- a checkpoint without `-leave-running` that fails kills the sandbox: it is always given;
- `delete` waits a second or more for what SIGKILL does in milliseconds: `forget` removes the traces of a dead one.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from outlive.machine.backends.gvisor.commands import Ended, run_command

_FLAGS = ("--network=none", "--host-uds=open", "--overlay2=none", "--platform=systrap")
_START_S = 60.0
_CONTROL_S = 20.0
_IMAGE_BYTES_PER_S = 20 << 20  # far below any disk: what a big memory adds to the deadline
# Where runsc puts the socket of a sandbox when the path below its own directory is too long for one.
_SOCKET_PLACES = ("/var/run", "/run", "/tmp")  # noqa: S108


def container_id(machine: str, generation: int) -> str:
    return f"{machine}-{generation:08x}"


class Runsc:
    def __init__(self, root: Path, program: str = "runsc") -> None:
        self._root = root
        self._program = program

    def argv(self, *command: str) -> list[str]:
        return [self._program, f"--root={self._root}", *_FLAGS, *command]

    async def run(self, name: str, bundle: Path, *, output: Path) -> Ended:
        return await self._call("run", "-detach", bundle_argument(bundle), name, output=output, deadline_s=_START_S)

    async def restore(self, name: str, bundle: Path, image: Path, *, output: Path) -> Ended:
        command = ("restore", "-detach", bundle_argument(bundle), f"-image-path={image}", name)
        deadline_s = _START_S + _bytes_in(image) / _IMAGE_BYTES_PER_S
        return await self._call(*command, output=output, deadline_s=deadline_s)

    async def pause(self, name: str, *, output: Path) -> Ended:
        return await self._call("pause", name, output=output, deadline_s=_CONTROL_S)

    async def resume(self, name: str, *, output: Path) -> Ended:
        return await self._call("resume", name, output=output, deadline_s=_CONTROL_S)

    async def checkpoint(self, name: str, image: Path, *, memory_bytes: int, output: Path) -> Ended:
        command = ("checkpoint", "-leave-running", "-compression=none", f"-image-path={image}", name)
        return await self._call(*command, output=output, deadline_s=_START_S + memory_bytes / _IMAGE_BYTES_PER_S)

    def is_paused(self, name: str) -> bool:
        """As runsc wrote it down. Asking runsc itself takes longer, and never ends for a frozen one."""
        try:
            return bool(json.loads(self._state_path(name).read_bytes())["status"] == "paused")
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def forget(self, name: str) -> None:
        """Remove what is left of one whose processes are gone."""
        for trace in self._traces(name):
            trace.unlink(missing_ok=True)

    async def _call(self, *command: str, output: Path, deadline_s: float) -> Ended:
        return await run_command(self.argv(*command), output=output, deadline_s=deadline_s)

    def _state_path(self, name: str) -> Path:
        return self._root / f"{name}_sandbox:{name}.state"

    def _traces(self, name: str) -> Iterator[Path]:
        yield self._state_path(name)
        yield self._root / f"{name}_sandbox:{name}.lock"
        for place in (str(self._root), *_SOCKET_PLACES):
            yield Path(place) / f"runsc-{name}.sock"


def bundle_argument(bundle: Path) -> str:
    """How a process of one sandbox is known by its arguments: runsc hands this one on to all that it starts."""
    return f"--bundle={bundle}"


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
