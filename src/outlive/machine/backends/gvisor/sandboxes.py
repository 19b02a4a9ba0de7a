"""The sandboxes of one host, made with gVisor. Implements the port `outlive.machine.sandbox`.

    <node>/machines/<machine>/<generation>/
        sandbox.json   the record: how far we came, and which processes it lives by
        disk.img       a sparse disk of the size of the limit, mounted at
        disk/          upper (what differs from the base), work, console.log (what PID 1 says)
        root/          overlay of base and upper
        bundle/  host/  image/  logs/
    <node>/runsc/      runsc's own state
    <node>/blanks/     an empty disk of each size, to be copied
    <node>/lease       until when they may run, for the watchdog; beside it the locks of node and watchdog

Rule 1: the truth is the kernel's. A sandbox lives while its processes do, whatever runsc's files say; all that belongs
        to it is in its cgroup, and ends by SIGKILL to all that is there.
Rule 2: calls for one sandbox come one after another; calls for different ones in any number at once.
Rule 3: paths of unix sockets end at 107 bytes. Whoever binds one in `host_path` goes through an open directory:
        `/proc/self/fd/<number>/ctl.sock`.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio

from outlive.base import BrokenError, ConflictError, DeadlineError, InvalidError, MachineId, UnavailableError, is_id
from outlive.machine.backends.gvisor.bundle import compose_bundle
from outlive.machine.backends.gvisor.cgroups import Cgroups, check_limits, find_cgroups, parse_mounts
from outlive.machine.backends.gvisor.commands import Ended
from outlive.machine.backends.gvisor.disk import (
    check_plain,
    end_programs,
    is_mount,
    make_disk,
    mount_root,
    unmount_all,
    used_bytes,
)
from outlive.machine.backends.gvisor.guard import LeaseGuard, open_guard
from outlive.machine.backends.gvisor.processes import (
    arguments_of,
    find_by_argument,
    find_process,
    is_alive,
    kill_all,
)
from outlive.machine.backends.gvisor.record import Phase, Process, SandboxRecord, decide_state
from outlive.machine.backends.gvisor.runsc import Runsc, bundle_argument, container_id
from outlive.machine.sandbox import Sandbox, SandboxPlan, SandboxState, Usage
from outlive.machine.spec import Limits

_VITAL = ("runsc-sandbox", "runsc-gofer")  # a sandbox lives while both do
_FREEZE_S = 5.0
_KILL_S = 20.0
_POLL_S = 0.002
_TRIES = 20


def open_gvisor_sandboxes(node_path: Path, cgroup_name: str, runsc: str = "runsc") -> "GvisorSandboxes":
    """`node_path`: absolute, of this node alone. `cgroup_name`: below which its cgroups are, `outlive/<home>` say."""
    check_plain(node_path)
    if not cgroup_name or any(part in ("", ".", "..") for part in cgroup_name.split("/")):
        raise InvalidError("sandbox.cgroup_name", f"{cgroup_name!r} is no name for a cgroup: use words and slashes.")
    if shutil.which(runsc) is None:
        raise UnavailableError("sandbox.no_runsc", f"There is no {runsc} on this host: run `scripts/setup`.")
    for folder in ("machines", "runsc", "blanks"):
        (node_path / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in (node_path / "blanks").iterdir():  # made by who knows which mkfs
        old.unlink()
    cgroups = find_cgroups(parse_mounts(Path("/proc/mounts").read_text()))
    return GvisorSandboxes(node_path, f"/{cgroup_name}", cgroups, Runsc(node_path / "runsc", runsc))


class GvisorSandboxes:
    """See the module. Made by `open_gvisor_sandboxes`."""

    def __init__(self, node_path: Path, cgroup: str, cgroups: Cgroups, runsc: Runsc) -> None:
        self._machines_path = node_path / "machines"
        self._blanks_path = node_path / "blanks"
        self._cgroup = cgroup
        self._cgroups = cgroups
        self._runsc = runsc

    async def prepare(self, plan: SandboxPlan) -> Sandbox:
        check_plan(plan)
        sandbox = self._sandbox(plan.machine, plan.generation, plan.limits)._replace(footing=plan.footing)
        if _phase(sandbox) in ("starting", "started"):
            raise ConflictError("sandbox.exists", f"{_name(sandbox)} has been started: destroy it first.")
        if sandbox.path.exists():
            # What never ran is made anew: nobody knows how far the filling of it had come.
            await self.destroy(sandbox)
        _make_folder(sandbox.path)
        record = SandboxRecord(
            machine=plan.machine,
            generation=plan.generation,
            limits=plan.limits,
            phase="making",
            layers=tuple(str(layer) for layer in plan.layers),
            footing=plan.footing,
        )
        _write(sandbox, record)
        for folder in ("bundle", "host", "logs"):
            (sandbox.path / folder).mkdir(mode=0o700)
        await make_disk(sandbox.path, plan.limits.disk_mib, blanks=self._blanks_path)
        bundle = compose_bundle(
            plan, root=str(sandbox.path / "root"), host=str(sandbox.host_path), cgroup=self._cgroup_of(sandbox)
        )
        (sandbox.path / "bundle" / "config.json").write_text(json.dumps(bundle))
        _write(sandbox, record.model_copy(update={"phase": "prepared"}))
        return sandbox

    async def start(self, sandbox: Sandbox) -> None:
        state = await self.state(sandbox)
        if state in ("running", "paused", "frozen"):
            return await self._check_limits(sandbox)
        # Nobody was told of one that was cut off while it started: it may start again.
        if state == "dead" and _phase(sandbox) != "starting":
            raise ConflictError("sandbox.dead", f"{_name(sandbox)} is dead and cannot be started: destroy it.")
        await self._sweep(sandbox)
        await self._make_room(sandbox)
        ended = await self._runsc.run(_name(sandbox), sandbox.path / "bundle", output=_console(sandbox))
        if (reason := self._why_not_running(sandbox, ended)) is not None:
            await self._undo_start(sandbox)
            raise BrokenError("sandbox.not_started", f"{_name(sandbox)} did not start: {reason}.")

    async def restore(self, sandbox: Sandbox) -> None:
        state = await self.state(sandbox)
        if state in ("running", "paused", "frozen"):
            return await self._check_limits(sandbox)
        # One that was cut off may have run for a moment: its filesystem no longer belongs to the memory.
        if state != "prepared":
            raise ConflictError("sandbox.dead", f"{_name(sandbox)} is dead and cannot be restored: destroy it.")
        if not (sandbox.image_path / "checkpoint.img").exists():
            raise BrokenError("sandbox.memory", f"{_name(sandbox)} has no memory to be restored from.")
        await self._make_room(sandbox)
        ended = await self._runsc.restore(
            _name(sandbox), sandbox.path / "bundle", sandbox.image_path, output=_console(sandbox)
        )
        if (reason := self._why_not_running(sandbox, ended)) is not None:
            await self._undo_start(sandbox)
            raise BrokenError("sandbox.memory", f"The memory of {_name(sandbox)} cannot be restored: {reason}.")

    async def pause(self, sandbox: Sandbox) -> None:
        if await self._state_of_live(sandbox) != "paused":
            await self._control(sandbox, await self._runsc.pause(_name(sandbox), output=_log(sandbox, "pause")))

    async def resume(self, sandbox: Sandbox) -> None:
        if await self._state_of_live(sandbox) == "paused":
            await self._control(sandbox, await self._runsc.resume(_name(sandbox), output=_log(sandbox, "resume")))

    async def save_memory(self, sandbox: Sandbox) -> None:
        if await self._state_of_live(sandbox) != "paused":
            raise ConflictError("sandbox.not_paused", f"{_name(sandbox)} is not paused: its memory would be torn.")
        await anyio.to_thread.run_sync(_empty, sandbox.image_path)
        ended = await self._runsc.checkpoint(
            _name(sandbox),
            sandbox.image_path,
            memory_bytes=sandbox.limits.memory_mib << 20,
            output=_log(sandbox, "checkpoint"),
        )
        if ended.code != 0:
            await anyio.to_thread.run_sync(_empty, sandbox.image_path)
            raise BrokenError("sandbox.memory", f"The memory of {_name(sandbox)} cannot be saved: {ended.said}.")

    async def freeze(self, sandbox: Sandbox) -> None:
        if await self.state(sandbox) not in ("running", "paused", "frozen"):
            raise ConflictError("sandbox.dead", f"{_name(sandbox)} is not running: there is nothing to freeze.")
        cgroup = self._cgroup_of(sandbox)
        self._cgroups.set_frozen(cgroup, True)
        if await _comes_true(lambda: self._cgroups.freezer_state(cgroup) == "frozen", _FREEZE_S):
            return
        self._cgroups.set_frozen(cgroup, False)
        raise DeadlineError("sandbox.not_frozen", f"{_name(sandbox)} could not be frozen within {_FREEZE_S:.0f} s.")

    async def thaw(self, sandbox: Sandbox) -> None:
        if self._cgroups.freezer_state(self._cgroup_of(sandbox)) != "thawed":
            self._cgroups.set_frozen(self._cgroup_of(sandbox), False)

    async def state(self, sandbox: Sandbox) -> SandboxState:
        record = _read(sandbox)
        if record is None:
            return "dead"
        return decide_state(
            record.phase,
            is_mounted=is_mount(sandbox.path / "disk"),
            is_alive=all(is_alive(process) for process in record.processes),
            is_frozen=self._cgroups.freezer_state(self._cgroup_of(sandbox)) != "thawed",
            is_paused=self._runsc.is_paused(_name(sandbox)),
        )

    async def has_disk(self, sandbox: Sandbox) -> bool:
        return is_mount(sandbox.path / "disk")

    async def usage(self, sandbox: Sandbox) -> Usage:
        used = self._cgroups.usage(self._cgroup_of(sandbox))
        return Usage(used.memory_bytes, used.cpu_s, used.threads, used_bytes(sandbox.path))

    async def destroy(self, sandbox: Sandbox) -> None:
        await self._sweep(sandbox)
        await self._remove(sandbox)

    async def find_all(self) -> Sequence[Sandbox]:
        found = []
        for folder in sorted(self._machines_path.glob("*/*")):
            if is_id(folder.parent.name, "mach") and folder.name.isascii() and folder.name.isdigit():
                sandbox = self._sandbox(MachineId(folder.parent.name), int(folder.name), Limits())
                # Without a record nothing was mounted yet and nothing runs: its limits do not matter.
                record = _read(sandbox)
                if record is not None:
                    sandbox = sandbox._replace(limits=record.limits, footing=record.footing)
                found.append(sandbox)
        return found

    def guarded(self) -> AbstractAsyncContextManager[LeaseGuard]:
        return open_guard(self._machines_path.parent, self._cgroups.switch(self._cgroup))

    def _sandbox(self, machine: MachineId, generation: int, limits: Limits) -> Sandbox:
        return Sandbox(machine, generation, self._machines_path / machine / str(generation), limits)

    def _cgroup_of(self, sandbox: Sandbox) -> str:
        return f"{self._cgroup}/{_name(sandbox)}"

    async def _make_room(self, sandbox: Sandbox) -> None:
        """All that has to be there before the first process is: limits that hold, and the filesystem."""
        _note(sandbox, "starting")
        self._cgroups.create(self._cgroup_of(sandbox), sandbox.limits)
        await self._check_limits(sandbox)
        record = _read(sandbox)
        assert record is not None
        await mount_root(sandbox.path, record.layers)

    def _why_not_running(self, sandbox: Sandbox, ended: Ended) -> str | None:
        """None, and noted, if it runs and its limits hold."""
        if ended.code != 0:
            return ended.said or f"runsc ended with {ended.code}"
        vital = [
            process
            for pid in self._cgroups.confined(self._cgroup_of(sandbox))
            if arguments_of(pid)[:1] in ([name] for name in _VITAL) and (process := find_process(pid)) is not None
        ]
        if len(vital) != len(_VITAL):
            return ended.said or "it died at once"
        _note(sandbox, "started", tuple(vital))
        return None

    async def _check_limits(self, sandbox: Sandbox) -> None:
        """Nothing runs, not even for a moment longer, where the limits do not hold."""
        cgroup = self._cgroup_of(sandbox)
        try:
            check_limits(sandbox.limits, self._cgroups.read_limits(cgroup), cgroup)
        except BrokenError:
            await self._sweep(sandbox)
            raise

    async def _undo_start(self, sandbox: Sandbox) -> None:
        await self._sweep(sandbox)
        _note(sandbox, "prepared")

    async def _state_of_live(self, sandbox: Sandbox) -> SandboxState:
        state = await self.state(sandbox)
        if state not in ("running", "paused"):
            raise ConflictError(f"sandbox.{state}", f"{_name(sandbox)} is {state}: it cannot be told anything.")
        return state

    async def _control(self, sandbox: Sandbox, ended: Ended) -> None:
        if ended.code != 0:
            raise UnavailableError("sandbox.failed", f"{_name(sandbox)} did not obey: {ended.said}.")

    async def _sweep(self, sandbox: Sandbox) -> None:
        """End every process of it, and remove what runsc keeps of it."""
        cgroup, record = self._cgroup_of(sandbox), _read(sandbox)
        mark = bundle_argument(sandbox.path / "bundle")
        with anyio.move_on_after(_KILL_S):
            while True:
                pids = self._cgroups.processes(cgroup)
                if record is not None:
                    pids |= {process.pid for process in record.processes if is_alive(process)}
                if not pids and (record is None or record.phase == "starting"):
                    pids |= set(find_by_argument(mark))  # on their way into the cgroup
                if not pids:
                    return self._runsc.forget(_name(sandbox))
                kill_all(pids)
                await self.thaw(sandbox)  # with the signal waiting: it does not get to run again
                self._cgroups.let_die(cgroup, pids)
                await anyio.sleep(_POLL_S)
        raise DeadlineError("sandbox.alive", f"{_name(sandbox)} has processes that do not die within {_KILL_S:.0f} s.")

    async def _remove(self, sandbox: Sandbox) -> None:
        """Everything but processes in it, of which there are none. May be asked for again, however far it came."""
        if not await _comes_true(lambda: self._cgroups.remove(self._cgroup_of(sandbox)), _KILL_S):
            raise DeadlineError("sandbox.cgroup", f"The cgroup of {_name(sandbox)} is not empty after {_KILL_S:.0f} s.")
        for _ in range(_TRIES):  # a program that was no more than forked is not found, and mounts in between
            if not await _comes_true(lambda: end_programs(sandbox.path), _KILL_S):
                raise DeadlineError("sandbox.alive", f"What mounts the disk of {_name(sandbox)} does not die.")
            await unmount_all(sandbox.path)
            if await anyio.to_thread.run_sync(_is_removed, sandbox.path):
                return
        raise UnavailableError("sandbox.folder", f"{str(sandbox.path)!r} cannot be removed; try again.")


async def _comes_true(condition: Callable[[], bool], within_s: float) -> bool:
    """The kernel tells nobody: it has to be asked again."""
    with anyio.move_on_after(within_s):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(_POLL_S)
        return True
    return False


def check_plan(plan: SandboxPlan) -> None:
    for path in (*plan.layers, plan.runtime):
        check_plain(path)
        if not path.is_dir():
            raise UnavailableError("sandbox.no_base", f"{str(path)!r}, which the machine is made from, is not there.")
    if not plan.layers or not plan.argv or not 0 <= plan.generation < 1 << 32:
        raise InvalidError("sandbox.plan", "A plan has a layer, a program and a generation of 32 bits.")


def _name(sandbox: Sandbox) -> str:
    return container_id(sandbox.machine, sandbox.generation)


def _console(sandbox: Sandbox) -> Path:
    """What PID 1 writes, and what runsc says when it starts it: on the machine's own disk, so bounded by its limit."""
    return sandbox.path / "disk" / "console.log"


def _log(sandbox: Sandbox, name: str) -> Path:
    return sandbox.path / "logs" / f"{name}.log"


def _read(sandbox: Sandbox) -> SandboxRecord | None:
    try:
        return SandboxRecord.model_validate_json((sandbox.path / "sandbox.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None  # ValueError: a host that lost its power may leave a file of nothing


def _write(sandbox: Sandbox, record: SandboxRecord) -> None:
    unnamed = sandbox.path / "sandbox.json.new"
    unnamed.write_text(record.model_dump_json())
    os.replace(unnamed, sandbox.path / "sandbox.json")


def _phase(sandbox: Sandbox) -> Phase | None:
    record = _read(sandbox)
    return None if record is None else record.phase


def _note(sandbox: Sandbox, phase: Phase, processes: tuple[Process, ...] = ()) -> None:
    record = _read(sandbox)
    if record is None:
        raise ConflictError("sandbox.dead", f"{_name(sandbox)} is not there.")
    _write(sandbox, record.model_copy(update={"phase": phase, "processes": processes}))


def _make_folder(folder: Path) -> None:
    """The folder of the machine goes with its last generation, at any moment."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            return folder.mkdir(mode=0o700, parents=True)
    raise UnavailableError("sandbox.folder", f"{str(folder)!r} cannot be made; try again.")


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _is_removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        return False
    with contextlib.suppress(OSError):  # other generations are in it, or it is gone
        folder.parent.rmdir()
    return True
