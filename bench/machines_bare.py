"""The rival of a machine: `runsc` alone, in a sandbox of the same kind.

The same: flags of runsc, base, guest's runtime and guest as PID 1, disk of its own under an overlay, limits, weight and
place of the cgroup. All of that is made before the clock starts. On the clock is only what nobody can do without: from
the start of `runsc` to the first frame (HELLO) that the guest says on its socket. No record, no API, no Temporal.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.machines_stack import Stack
from outlive.base import CheckpointId, new_machine_id
from outlive.guest.wire import Decoder, Kind
from outlive.machine.backends.bases.provider import CachedBases
from outlive.machine.backends.gvisor.cgroups import find_cgroups, parse_mounts
from outlive.machine.backends.gvisor.disk import mount_root
from outlive.machine.backends.gvisor.runsc import Runsc, bundle_argument, container_id
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.machine.checkpoint import CheckpointStore
from outlive.machine.guest_link.door import SOCKET
from outlive.machine.sandbox import Sandbox, SandboxPlan
from outlive.machine.spec import Limits
from outlive.storage.objects import open_objects
from outlive.wiring.node import cgroup_name

_WITHIN_S = 60.0


class BareSandboxes:
    def __init__(self, stack: Stack, base: str, limits: Limits | None = None) -> None:
        cache = stack.settings.machines.cache
        objects = stack.settings.objects_path
        assert objects is not None
        self._base = base
        self._limits = limits or Limits()
        self._bases = CachedBases(cache / "bases", cache / "runtimes")
        self._cgroup = cgroup_name(stack.bare_path)
        self._cgroups = find_cgroups(parse_mounts(Path("/proc/mounts").read_text()))
        self._sandboxes = open_gvisor_sandboxes(stack.bare_path, self._cgroup)
        self._runsc = Runsc(stack.bare_path / "runsc")
        self._store = CheckpointStore(open_objects(str(objects)))

    async def make(self, checkpoint: CheckpointId | None = None) -> Sandbox:
        """All but the sandbox itself; with a checkpoint, its memory and filesystem put in place."""
        base, runtime = await self._bases.base(self._base, None), await self._bases.runtime()
        machine = new_machine_id()
        sandbox = await self._sandboxes.prepare(
            SandboxPlan(
                machine=machine,
                generation=1,
                limits=self._limits,
                layers=base.layers,
                runtime=runtime.path,
                argv=runtime.argv,
                hostname=f"m-{machine[-12:]}",
            )
        )
        if checkpoint is not None:
            manifest = await self._store.read_manifest(checkpoint)
            await self._store.fetch(manifest, sandbox.image_path, sandbox.upper_path)
        self._cgroups.create(f"/{self._cgroup}/{_name(sandbox)}", sandbox.limits)
        await mount_root(sandbox.path, [str(layer) for layer in base.layers])
        return sandbox

    def start(self, sandbox: Sandbox) -> float:
        """Seconds from `runsc run` to the guest's HELLO."""
        return self._time(sandbox, "run", "-detach", bundle_argument(sandbox.path / "bundle"), _name(sandbox))

    def restore(self, sandbox: Sandbox) -> float:
        """Seconds from `runsc restore` to the guest's HELLO."""
        bundle, image = bundle_argument(sandbox.path / "bundle"), f"-image-path={sandbox.image_path}"
        return self._time(sandbox, "restore", "-detach", bundle, image, _name(sandbox))

    def start_many(self, sandboxes: list[Sandbox]) -> float:
        """Seconds until the last of them has said HELLO, all started at once."""
        with ThreadPoolExecutor(len(sandboxes)) as pool:
            started_at = time.perf_counter()
            list(pool.map(self.start, sandboxes))
            return time.perf_counter() - started_at

    async def destroy(self, sandbox: Sandbox) -> None:
        await self._sandboxes.destroy(sandbox)

    def _time(self, sandbox: Sandbox, *command: str) -> float:
        with _listening(sandbox.host_path) as listener, open(sandbox.path / "disk" / "console.log", "wb") as console:
            started_at = time.perf_counter()
            runsc = subprocess.Popen(
                self._runsc.argv(*command),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                cwd="/",
                start_new_session=True,
            )
            _hear_hello(listener)
            taken = time.perf_counter() - started_at
            if runsc.wait(_WITHIN_S) != 0:
                raise RuntimeError(f"runsc {command[0]} ended with {runsc.returncode}")
        return taken


@contextmanager
def _listening(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # an address that fits, however deep the folder is
            listener.bind(f"/proc/self/fd/{descriptor}/{SOCKET}")
        finally:
            os.close(descriptor)
        listener.listen(8)
        listener.settimeout(_WITHIN_S)
        yield listener


def _hear_hello(listener: socket.socket) -> None:
    accepted, _ = listener.accept()
    decoder = Decoder()
    with accepted:
        accepted.settimeout(_WITHIN_S)
        while True:
            data = accepted.recv(64 * 1024)
            if not data:
                raise RuntimeError("the guest hung up")
            if frames := decoder.feed(data):
                assert frames[0].kind is Kind.HELLO
                return


def _name(sandbox: Sandbox) -> str:
    return container_id(sandbox.machine, sandbox.generation)
