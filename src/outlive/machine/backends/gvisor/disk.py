"""The filesystem of a sandbox: the layers of its base, never written to, and what differs, on a disk of its own.

The disk is a file of the size of the limit, sparse, with an ext4 in it: a machine that fills it gets ENOSPC, and the
host does not notice. Mounts are the host's, not a process's: they stay when the node dies, and are found again.
Nothing here is journaled or synced: what has to outlive the host is in a checkpoint.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import anyio

from outlive.base import InvalidError, UnavailableError
from outlive.machine.backends.gvisor.commands import check_command, run_command
from outlive.machine.backends.gvisor.processes import find_by_argument, kill_all

_MKFS = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard")
# The kernel would fill in the tables of inodes behind our back: 160 MB of a disk of 10 GiB that nobody uses.
# Nothing on it is a device or a setuid program of the host's (gVisor does its own).
_DISK_OPTIONS = "loop,nodev,nosuid,noatime,noinit_itable"
# The upper is carried to other hosts: nothing in it may point to its base by anything but a path.
# volatile: no sync, which nothing here counts on.
_OVERLAY_OPTIONS = "nodev,nosuid,noatime,index=off,metacopy=off,redirect_dir=off,xino=off,volatile"
_DEADLINE_S = 30.0
_PLAIN = re.compile(r"/[^,:\\\"\s]*")  # what the options of a mount take as it is
_TRIES = 3
_BLANKS = 16  # sizes of which an empty disk is kept
_EXT4_SHUTDOWN = 0x8004587D  # an ioctl: from now on the filesystem writes nothing
_WITHOUT_WRITING = struct.pack("I", 2)


def check_plain(path: Path) -> None:
    if not _PLAIN.fullmatch(str(path)):
        raise InvalidError(
            "sandbox.path", f"{str(path)!r} cannot be mounted: use a path without commas, colons, spaces."
        )


async def make_disk(path: Path, size_mib: int, *, blanks: Path) -> None:
    """`path`/disk.img, mounted at `path`/disk, empty. `blanks`: where empty disks are kept."""
    image, place = path / "disk.img", path / "disk"
    output = path / "logs" / "disk.log"
    await _make_image(image, size_mib, blanks, output)
    place.mkdir()
    mount = ["mount", "-n", "-t", "ext4", "-o", _DISK_OPTIONS, str(image), str(place)]
    await check_command(mount, output=output, deadline_s=_DEADLINE_S)


async def mount_root(path: Path, layers: Sequence[str]) -> None:
    """Layers, topmost first, and the upper, at `path`/root. The upper is not to be written to from now on."""
    root, disk = path / "root", path / "disk"
    root.mkdir(exist_ok=True)
    if root.is_mount():
        return
    await anyio.to_thread.run_sync(_make_upper_and_work, disk)
    options = f"{_OVERLAY_OPTIONS},lowerdir={':'.join(layers)},upperdir={disk}/upper,workdir={disk}/work"
    mount = ["mount", "-n", "-t", "overlay", "-o", options, "overlay", str(root)]
    await check_command(mount, output=path / "logs" / "root.log", deadline_s=_DEADLINE_S)


def end_programs(path: Path) -> bool:
    """Whether nobody makes or mounts a filesystem at `path` any more. A node that was killed leaves the programs that
    it had begun, and one of them may mount a moment after all was unmounted."""
    pids = find_by_argument(*(str(path / name) for name in ("disk.img", "disk", "root")))
    kill_all(pids)
    return not pids


async def unmount_all(path: Path) -> None:
    """Both, if they are there; a mount that something still holds is taken out of sight, and ends with its holder.

    What was not written to the disk yet is thrown away: the disk goes next. Of the folder it needs nothing else.
    """
    if is_mount(path / "disk"):
        await anyio.to_thread.run_sync(_forget_unwritten, path)
    for place in (path / "root", path / "disk"):
        for attempt in range(_TRIES):
            if not is_mount(place):
                break
            options = ["-l"] if attempt == _TRIES - 1 else []
            argv = ["umount", "-n", *options, str(place)]
            await run_command(argv, output=Path(os.devnull), deadline_s=_DEADLINE_S)
        if is_mount(place):
            raise UnavailableError("sandbox.mounted", f"{str(place)!r} cannot be unmounted; try again.")


def is_mount(place: Path) -> bool:
    try:
        return place.is_mount()
    except OSError:
        return True  # one that cannot even be looked at is there, and broken


def used_bytes(path: Path) -> int:
    """Of the disk: what differs from the base, and the filesystem's own tables."""
    try:
        found = os.statvfs(path / "disk")
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _forget_unwritten(path: Path) -> None:
    """Else an unmount waits until all is written: seconds, for a disk that is about to be removed."""
    with contextlib.suppress(OSError):
        folder = os.open(path / "disk", os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Only ever the filesystem in this very image: the call ends a filesystem for all who use it.
            device = os.fstat(folder).st_dev
            backing = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/loop/backing_file").read_text()
            if backing.rstrip("\n") == str(path / "disk.img"):
                fcntl.ioctl(folder, _EXT4_SHUTDOWN, _WITHOUT_WRITING)
        finally:
            os.close(folder)


async def _make_image(image: Path, size_mib: int, blanks: Path, output: Path) -> None:
    """To copy a blank one takes a tenth of the time that it takes to make it."""
    blank = blanks / f"{size_mib}.img"
    with contextlib.suppress(FileNotFoundError):  # none yet, or none any more
        return await anyio.to_thread.run_sync(copy_sparse, blank, image)
    _make_sparse(image, size_mib << 20)
    await check_command([*_MKFS, str(image)], output=output, deadline_s=_DEADLINE_S)
    if len(os.listdir(blanks)) < _BLANKS:
        unnamed = blanks / f"{image.parent.parent.name}.new"
        await anyio.to_thread.run_sync(copy_sparse, image, unnamed)
        os.replace(unnamed, blank)


def copy_sparse(source: Path, target: Path) -> None:
    """What is written in it, at the same places; the holes stay holes."""
    with open(source, "rb", buffering=0) as read, open(target, "wb", buffering=0) as written:
        size = os.fstat(read.fileno()).st_size
        written.truncate(size)
        end = 0
        while (start := _seek(read.fileno(), end, os.SEEK_DATA)) is not None:
            end = _seek(read.fileno(), start, os.SEEK_HOLE) or size
            read.seek(start)
            written.seek(start)
            while (left := end - read.tell()) > 0:
                written.write(read.read(min(left, 1 << 20)))


def _seek(descriptor: int, offset: int, whence: int) -> int | None:
    try:
        return os.lseek(descriptor, offset, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing more
            return None
        raise


def _make_sparse(file: Path, size: int) -> None:
    with open(file, "xb") as opened:
        opened.truncate(size)


def _make_upper_and_work(disk: Path) -> None:
    if not (disk / "upper").exists():
        (disk / "upper").mkdir()
        (disk / "upper").chmod(0o755)  # the "/" of the machine, whatever the umask is here
    # overlayfs refuses a work folder that a volatile mount used before.
    shutil.rmtree(disk / "work", ignore_errors=True)
    (disk / "work").mkdir(mode=0o700, exist_ok=True)
