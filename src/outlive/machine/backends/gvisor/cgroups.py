"""The cgroup of a sandbox: made and limited before anything runs in it, read back, frozen, emptied, removed.

Knows both kinds of cgroups. With version 1 each controller is a tree of its own, and one that is not there limits
nothing though its files can be written to: so what was set is always read back, from the controller's own mount.
Every path given to `Cgroups` is absolute below the top of the tree ("/outlive/…"), as in the bundle.
All functions here block, each for a moment only (the kernel answers them from memory).
"""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from outlive.base import BrokenError, UnavailableError
from outlive.machine.backends.gvisor.bundle import CPU_PERIOD_US
from outlive.machine.backends.gvisor.watchdog import Switch
from outlive.machine.spec import Limits

_NEEDED = ("memory", "cpu", "pids", "freezer")
_V2_NEEDED = ("memory", "cpu", "pids")
_RETRIES = 20  # a parent may be removed, being empty, just before its new child is made

FreezerState = Literal["thawed", "freezing", "frozen"]


class CgroupUsage(NamedTuple):
    memory_bytes: int
    cpu_s: float
    threads: int


class Cgroups(Protocol):
    def create(self, path: str, limits: Limits) -> None:
        """Make it and set its limits; if it is there, set them again."""
        ...

    def read_limits(self, path: str) -> Mapping[str, int]:
        """What the kernel enforces: memory_bytes, cpu_us (per CPU_PERIOD_US), threads. 0: no limit."""
        ...

    def processes(self, path: str) -> set[int]:
        """All that are in it, in whichever tree."""
        ...

    def confined(self, path: str) -> set[int]:
        """Those that every limit holds for."""
        ...

    def set_frozen(self, path: str, is_frozen: bool) -> None: ...

    def freezer_state(self, path: str) -> FreezerState:
        """Of its own, whatever the ones above it say. `thawed` also where there is nothing."""
        ...

    def switch(self, path: str) -> Switch:
        """For the watchdog: how it and all below it are frozen, whatever becomes of their own freezers."""
        ...

    def let_die(self, path: str, pids: Iterable[int]) -> None:
        """These have been sent SIGKILL: see that they can die of it, also below a frozen cgroup."""
        ...

    def usage(self, path: str) -> CgroupUsage: ...

    def remove(self, path: str) -> bool:
        """Remove it and the parents that are empty then. False while something is still in it."""
        ...


class Mounts(NamedTuple):
    v1: Mapping[str, Path]  # controller (or name=…) -> where it is
    v2: Path | None


def parse_mounts(text: str) -> Mounts:
    """Of `/proc/mounts`."""
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in text.splitlines():
        _, place, kind, options, *_ = line.split(" ")
        path = Path(place.encode().decode("unicode_escape"))
        if kind == "cgroup2" and v2 is None:
            v2 = path
        elif kind == "cgroup":
            for option in options.split(","):
                if option not in ("rw", "relatime", "nosuid", "nodev", "noexec", "xattr", "clone_children"):
                    v1.setdefault(option, path)
    return Mounts(v1, v2)


def find_cgroups(mounts: Mounts) -> Cgroups:
    if all(controller in mounts.v1 for controller in _NEEDED):
        return CgroupsV1(mounts.v1)
    if mounts.v2 is not None:
        offered = (mounts.v2 / "cgroup.controllers").read_text().split()
        if all(controller in offered for controller in _V2_NEEDED):
            return CgroupsV2(mounts.v2)
    raise UnavailableError(
        "sandbox.no_cgroups",
        "This host has no cgroup controllers for memory, cpu, pids and freezing: no machine's limits would hold. "
        "Mount them, or give this process access to them.",
    )


def expected_limits(limits: Limits) -> dict[str, int]:
    return {
        "memory_bytes": limits.memory_mib << 20,
        "cpu_us": round(limits.cpus * CPU_PERIOD_US),
        "threads": limits.threads,
    }


def check_limits(limits: Limits, found: Mapping[str, int], path: str) -> None:
    if dict(found) != expected_limits(limits):
        raise BrokenError(
            "sandbox.limits",
            f"The limits of {path!r} do not hold: the kernel says {dict(found)}, not {expected_limits(limits)}.",
        )


class CgroupsV1:
    """One tree per controller."""

    def __init__(self, trees: Mapping[str, Path]) -> None:
        self._trees = trees

    def create(self, path: str, limits: Limits) -> None:
        # Those that are not made here runsc makes itself, and puts the sandbox into them.
        for controller in _NEEDED:
            _make_folders(self._at(controller, path))
        wanted = expected_limits(limits)
        _set_memory(self._at("memory", path), wanted["memory_bytes"])
        _write(self._at("cpu", path) / "cpu.cfs_period_us", CPU_PERIOD_US)
        _write(self._at("cpu", path) / "cpu.cfs_quota_us", wanted["cpu_us"])
        _write(self._at("pids", path) / "pids.max", wanted["threads"])
        for folder, cpus in _weights(self._trees["cpu"], path, limits):
            _write(folder / "cpu.shares", max(2, round(1024 * cpus)))

    def read_limits(self, path: str) -> Mapping[str, int]:
        period = _number(self._at("cpu", path) / "cpu.cfs_period_us") or CPU_PERIOD_US
        quota = _number(self._at("cpu", path) / "cpu.cfs_quota_us")
        return {
            "memory_bytes": _number(self._at("memory", path) / "memory.limit_in_bytes"),
            "cpu_us": max(0, quota) * CPU_PERIOD_US // period,
            "threads": _number(self._at("pids", path) / "pids.max"),
        }

    def processes(self, path: str) -> set[int]:
        return set[int]().union(*(_pids(self._at(controller, path)) for controller in _NEEDED))

    def confined(self, path: str) -> set[int]:
        return set[int].intersection(*(_pids(self._at(controller, path)) for controller in _NEEDED))

    def set_frozen(self, path: str, is_frozen: bool) -> None:
        _write(self._at("freezer", path) / "freezer.state", "FROZEN" if is_frozen else "THAWED")

    def switch(self, path: str) -> Switch:
        return Switch(self._at("freezer", path), "freezer.state", "FROZEN", "THAWED")

    def let_die(self, path: str, pids: Iterable[int]) -> None:
        if _text(self._at("freezer", path) / "freezer.parent_freezing") == "1":
            # What is frozen does not die here. Outside it thaws, and the first thing that it meets is the signal.
            for pid in pids:
                with contextlib.suppress(OSError):  # it is dead
                    (self._trees["freezer"] / "cgroup.procs").write_text(str(pid))

    def freezer_state(self, path: str) -> FreezerState:
        if _text(self._at("freezer", path) / "freezer.self_freezing") == "0":
            return "thawed"
        match _text(self._at("freezer", path) / "freezer.state"):
            case "FROZEN":
                return "frozen"
            case "FREEZING":
                return "freezing"
            case _:
                return "thawed"

    def usage(self, path: str) -> CgroupUsage:
        return CgroupUsage(
            memory_bytes=_number(self._at("memory", path) / "memory.usage_in_bytes"),
            cpu_s=_number(self._at("cpuacct", path) / "cpuacct.usage") / 1e9 if "cpuacct" in self._trees else 0.0,
            threads=_number(self._at("pids", path) / "pids.current"),
        )

    def remove(self, path: str) -> bool:
        left = [tree for tree in {*self._trees.values()} if not _remove_folders(tree, path)]
        return not left

    def _at(self, controller: str, path: str) -> Path:
        return self._trees[controller] / path.lstrip("/")


class CgroupsV2:
    """One tree for all. Only the reading of its files is tested where this was written; the calls are the same."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def create(self, path: str, limits: Limits) -> None:
        folder = self._at(path)
        _make_folders(folder)
        for parent in reversed(folder.relative_to(self._tree).parents):
            _write(self._tree / parent / "cgroup.subtree_control", " ".join(f"+{name}" for name in _V2_NEEDED))
        wanted = expected_limits(limits)
        _write(folder / "memory.max", wanted["memory_bytes"])
        _write(folder / "cpu.max", f"{wanted['cpu_us']} {CPU_PERIOD_US}")
        _write(folder / "pids.max", wanted["threads"])
        for weighed, cpus in _weights(self._tree, path, limits):
            _write(weighed / "cpu.weight", min(10_000, max(1, round(100 * cpus))))
        for optional, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
            if (folder / optional).exists():
                _write(folder / optional, value)

    def read_limits(self, path: str) -> Mapping[str, int]:
        quota, period = _text(self._at(path) / "cpu.max").split()
        return {
            "memory_bytes": _number(self._at(path) / "memory.max"),
            "cpu_us": 0 if quota == "max" else int(quota) * CPU_PERIOD_US // int(period),
            "threads": _number(self._at(path) / "pids.max"),
        }

    def processes(self, path: str) -> set[int]:
        return _pids(self._at(path))

    def confined(self, path: str) -> set[int]:
        return _pids(self._at(path))

    def set_frozen(self, path: str, is_frozen: bool) -> None:
        _write(self._at(path) / "cgroup.freeze", int(is_frozen))

    def switch(self, path: str) -> Switch:
        return Switch(self._at(path), "cgroup.freeze", "1", "0")

    def let_die(self, path: str, pids: Iterable[int]) -> None:
        """Nothing to do: what is frozen can be killed."""

    def freezer_state(self, path: str) -> FreezerState:
        if _text(self._at(path) / "cgroup.freeze") != "1":
            return "thawed"
        return "frozen" if _field(self._at(path) / "cgroup.events", "frozen") == 1 else "freezing"

    def usage(self, path: str) -> CgroupUsage:
        return CgroupUsage(
            memory_bytes=_number(self._at(path) / "memory.current"),
            cpu_s=_field(self._at(path) / "cpu.stat", "usage_usec") / 1e6,
            threads=_number(self._at(path) / "pids.current"),
        )

    def remove(self, path: str) -> bool:
        return _remove_folders(self._tree, path)

    def _at(self, path: str) -> Path:
        return self._tree / path.lstrip("/")


def _weights(tree: Path, path: str, limits: Limits) -> Iterator[tuple[Path, float]]:
    """How many CPUs' worth each folder counts where there are too few: a machine by its limit, all of them as the host.

    A folder left alone counts as one process, however many machines are below it.
    """
    folder = tree / path.lstrip("/")
    yield folder, limits.cpus
    for parent in folder.parents:
        if parent == tree:
            return
        yield parent, os.cpu_count() or 1


def _set_memory(folder: Path, limit: int) -> None:
    """Of memory, and of memory and swap together where the kernel counts that. The second is never the smaller one."""
    both = folder / "memory.memsw.limit_in_bytes"
    order = [folder / "memory.limit_in_bytes", *([both] if both.exists() else [])]
    if both.exists() and _number(both) < limit:
        order.reverse()
    for file in order:
        _write(file, limit)


def _make_folders(folder: Path) -> None:
    for _ in range(_RETRIES):
        with contextlib.suppress(FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            return
    raise UnavailableError("sandbox.cgroup", f"The cgroup {str(folder)!r} could not be made: its parent goes away.")


def _remove_folders(tree: Path, path: str) -> bool:
    folder = tree / path.lstrip("/")
    try:
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise
    for parent in folder.parents:
        if parent == tree:
            break
        try:
            parent.rmdir()
        except OSError:
            break  # others are in it
    return True


def _write(file: Path, value: int | str) -> None:
    try:
        with open(file, "w") as opened:
            opened.write(str(value))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UnavailableError("sandbox.cgroup", f"{str(file)!r} does not take {value!r}: {reason}.") from error


def _text(file: Path) -> str:
    """Empty for a file that is not there."""
    try:
        return file.read_text().strip()
    except OSError:  # ENODEV: removed while it was open
        return ""


def _number(file: Path) -> int:
    text = _text(file)
    return int(text) if text not in ("", "max") else 0


def _field(file: Path, name: str) -> int:
    for line in _text(file).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _pids(folder: Path) -> set[int]:
    return {int(pid) for pid in _text(folder / "cgroup.procs").split()}
