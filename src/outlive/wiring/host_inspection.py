"""Looking at what machines need of this host: what `outlive doctor` asks besides `wiring.inspection`.

As there: each function returns a sentence if all is well and raises one of our errors, with the remedy, if not. What
decides is pure and takes what was read.
"""

import os
import re
import shutil
from datetime import date
from pathlib import Path
from typing import NamedTuple

from outlive.base import DeniedError, NotFoundError, UnavailableError
from outlive.machine.backends.bases import list_bases, look_for_runtime
from outlive.machine.backends.gvisor.cgroups import CgroupsV1, find_cgroups, parse_mounts
from outlive.machine.base import DEFAULT_REFERENCE
from outlive.wiring.node import read_host_facts
from outlive.wiring.settings import Settings

OLDEST_KERNEL = (4, 15)
_PROGRAMS = {"mkfs.ext4": "e2fsprogs", "mount": "mount", "umount": "mount"}
_GIB = 2**30
_MIB = 2**20
_ROOM = 5 * _GIB  # a base of Debian takes about one, and twice that while it is made
_DATE = re.compile(r"(20\d\d)(\d\d)(\d\d)")


class RunscAge(NamedTuple):
    version: str
    months: int | None  # None: its version names no day

    @property
    def sentence(self) -> str:
        if self.months is None:
            return f"runsc {self.version}, whose version does not say how old it is"
        return f"runsc {self.version}, {self.months} {'month' if self.months == 1 else 'months'} old"


def months_since(version: str, today: date) -> int | None:
    """Whole months since the day in a version such as `release-20240729.0` or `0.0~20240729.0`."""
    found = _DATE.search(version)
    if found is None:
        return None
    year, month, day = map(int, found.groups())
    return max(0, (today.year - year) * 12 + today.month - month - (today.day < day))


def inspect_root(user: int) -> str:
    if user != 0:
        raise DeniedError("machines.not_root", "This process is not root: mounts, cgroups and sandboxes need it.")
    return "this process is root"


def inspect_kernel(release: str, filesystems: str, *, has_loop: bool) -> str:
    """Of `uname -r` and `/proc/filesystems`."""
    missing = []
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_KERNEL:
        missing.append(f"a kernel of {OLDEST_KERNEL[0]}.{OLDEST_KERNEL[1]} or newer")
    known = {line.split("\t")[-1] for line in filesystems.splitlines()}
    missing += [f"the filesystem {name}" for name in ("overlay", "ext4") if name not in known]
    if not has_loop:
        missing.append("loop devices (/dev/loop-control)")
    if missing:
        raise UnavailableError("machines.kernel", f"Linux {release} lacks {', '.join(missing)}.")
    return f"Linux {release} with overlayfs, ext4 and loop devices"


def inspect_host_kernel() -> str:
    has_loop = Path("/dev/loop-control").exists()
    return inspect_kernel(os.uname().release, Path("/proc/filesystems").read_text(), has_loop=has_loop)


def inspect_cgroups() -> str:
    """Whether limits can hold here. Raises `sandbox.no_cgroups`."""
    cgroups = find_cgroups(parse_mounts(Path("/proc/mounts").read_text()))
    version = 1 if isinstance(cgroups, CgroupsV1) else 2
    return f"version {version}, with memory, cpu, pids and freezer"


def inspect_runsc(settings: Settings, today: date) -> RunscAge:
    """Raises `sandbox.no_runsc` if it is not there or does not answer."""
    version = read_host_facts(settings.machines.runsc).runsc_version
    return RunscAge(version, months_since(version, today))


def inspect_programs() -> str:
    missing = {name: package for name, package in _PROGRAMS.items() if shutil.which(name) is None}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise NotFoundError("machines.programs", f"{', '.join(missing)} not found: install Debian's {packages}.")
    return f"{', '.join(_PROGRAMS)} are there"


def inspect_mmdebstrap() -> str:
    found = shutil.which("mmdebstrap")
    if found is None:
        raise NotFoundError("base.no_mmdebstrap", "mmdebstrap is not installed: no base of Debian can be made here.")
    return f"{found} makes bases of Debian"


def inspect_base(settings: Settings) -> str:
    """Whether the usual base is there. Others are named too."""
    records = [record for _, record in list_bases(settings.machines.cache / "bases")]
    if not any(record.reference == DEFAULT_REFERENCE for record in records):
        others = f"; there are {len(records)} others" if records else ""
        raise NotFoundError("base.missing", f"The base {DEFAULT_REFERENCE!r} was not made yet{others}.")
    return "; ".join(f"{record.reference} {record.key} ({record.bytes / _MIB:.0f} MiB)" for record in records)


def inspect_runtime(settings: Settings) -> str:
    record = look_for_runtime(settings.machines.cache / "runtimes")
    if record is None:
        raise NotFoundError("runtime.missing", "The guest's runtime of this version was not made yet.")
    return f"{record.key} ({record.bytes / _MIB:.0f} MiB)"


def inspect_room(settings: Settings) -> str:
    """Of the disk that holds bases and runtimes."""
    place = settings.machines.cache
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < _ROOM:
        raise UnavailableError(
            "machines.room", f"{free / _GIB:.1f} GiB free at {settings.machines.cache}: bases need 5."
        )
    return f"{free / _GIB:.1f} GiB free at {settings.machines.cache}"
