"""A sandbox, only to see that one can run here: it boots, its guest says hello, it is destroyed.

It has a folder and a cgroup of its own, apart from the node's. What a killed trial left is removed by the next one.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from outlive.base import ConflictError, NotFoundError, new_machine_id
from outlive.machine.backends.bases import find_runtime, look_for_runtime
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.machine.base import Runtime
from outlive.machine.guest_link import Welcome, open_door
from outlive.machine.sandbox import Sandboxes, SandboxPlan
from outlive.machine.spec import Limits
from outlive.wiring.node import cgroup_name
from outlive.wiring.settings import Settings

_LIMITS = Limits(memory_mib=256, cpus=1.0, threads=1_024, disk_mib=32)
_HELLO_S = 10.0
_CLEAN_UP_S = 30.0


async def try_sandbox(settings: Settings) -> float:
    """Milliseconds from the start of a sandbox to its guest's answer. The base is an empty folder: the guest brings all
    that it needs. `runtime.missing` if that was not made yet."""
    runtime = await anyio.to_thread.run_sync(_find_runtime, settings)
    place = settings.home / "trial"
    with _alone(place):
        sandboxes = open_gvisor_sandboxes(place, cgroup_name(place), settings.machines.runsc)
        try:
            await _destroy_all(sandboxes)
            return await _boot(sandboxes, place, runtime)
        finally:
            with anyio.CancelScope(shield=True), anyio.fail_after(_CLEAN_UP_S):
                await _destroy_all(sandboxes)
            # Only what is empty of mounts by now: `destroy` has said so.
            await anyio.to_thread.run_sync(shutil.rmtree, place)


async def _boot(sandboxes: Sandboxes, place: Path, runtime: Runtime) -> float:
    base = place / "base"
    base.mkdir(exist_ok=True)
    plan = SandboxPlan(new_machine_id(), 1, _LIMITS, (base,), runtime.path, runtime.argv, "trial")
    sandbox = await sandboxes.prepare(plan)
    welcome = Welcome(plan.machine, plan.generation, plan.hostname, secrets.token_hex(32))
    async with open_door(sandbox.host_path, welcome) as door:
        began = anyio.current_time()
        await sandboxes.start(sandbox)
        await (await door.guest(_HELLO_S)).ping()
        return (anyio.current_time() - began) * 1000


async def _destroy_all(sandboxes: Sandboxes) -> None:
    for sandbox in await sandboxes.find_all():
        await sandboxes.destroy(sandbox)


def _find_runtime(settings: Settings) -> Runtime:
    cache = settings.machines.cache / "runtimes"
    record = look_for_runtime(cache)
    if record is None:
        raise NotFoundError("runtime.missing", "The guest's runtime of this version was not made yet.")
    return find_runtime(record.key, cache)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError("sandbox.trial", "Another trial is under way in this home.") from None
        yield
    finally:
        os.close(descriptor)
