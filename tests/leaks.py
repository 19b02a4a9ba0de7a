"""What a node leaves on its host: nothing. Counts mounts, loop devices, cgroups, processes and directories."""

import os
from pathlib import Path

from eventually import eventually, eventually_sync


def leftovers(node_path: Path, cgroup: str, *, are_asleep: bool = False) -> list[str]:
    """All on this host that belongs to the machines of the node at `node_path`, whose cgroups are in `cgroup`; with
    `are_asleep` without what it keeps of those that sleep: what they have printed, the journals of their terminals."""
    return [
        *_mounts(node_path),
        *_loop_devices(node_path),
        *_cgroups(cgroup),
        *_processes(node_path),
        *_folders(node_path, "machines", "runsc"),
        *([] if are_asleep else _folders(node_path, "spool", "terminals")),
    ]


def assert_nothing_left(node_path: Path, cgroup: str, within_s: float = 5.0, *, are_asleep: bool = False) -> None:
    """A loop device is let go by the kernel a moment after its last mount."""

    def left() -> list[str]:
        return leftovers(node_path, cgroup, are_asleep=are_asleep)

    try:
        eventually_sync(lambda: not left(), within_s)
    except AssertionError:
        raise AssertionError(f"left behind: {left()}") from None


async def nothing_is_left(node_path: Path, cgroup: str, within_s: float = 20.0, *, are_asleep: bool = False) -> None:
    """The same where the node is still there, in this event loop: it is the one that takes things away."""

    def left() -> list[str]:
        return leftovers(node_path, cgroup, are_asleep=are_asleep)

    try:
        await eventually(lambda: not left(), within_s)
    except AssertionError:
        raise AssertionError(f"left behind: {left()}") from None


def _mounts(node_path: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [f"mount {place}" for place in (line.split()[4] for line in lines) if Path(place).is_relative_to(node_path)]


def _loop_devices(node_path: Path) -> list[str]:
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = backing.read_text().strip()
        except OSError:
            continue  # let go of while we looked
        if Path(file).is_relative_to(node_path):
            found.append(f"loop device {backing.parent.parent.name} of {file}")
    return found


def _cgroups(cgroup: str) -> list[str]:
    top = Path("/sys/fs/cgroup")
    return [f"cgroup {path}" for path in (top / cgroup, *top.glob(f"*/{cgroup}")) if path.is_dir()]


def _processes(node_path: Path) -> list[str]:
    """Those of runsc that were told of a place below the node."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            arguments = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if arguments[0].startswith("runsc") and f"--root={node_path}/runsc" in arguments:
            found.append(f"process {entry}: {' '.join(arguments)[:100]}")
    return found


def _folders(node_path: Path, *kinds: str) -> list[str]:
    return [str(path) for kind in kinds for path in (node_path / kind).glob("*")]
