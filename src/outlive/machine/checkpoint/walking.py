"""Reads the upper directory of an overlay: the bytes of its files as one stream, and its tree of records.

The machine stands still meanwhile, but what is there was made by it: nothing is followed, nothing is opened that is
not a plain file or a folder, and everything is reached step by step from the descriptor of the folder that holds it.

Invariant: what cannot be kept (a device, folders too deep) is refused by name; nothing is left out in silence.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from outlive.base import ConflictError, ExhaustedError, InvalidError
from outlive.machine.checkpoint.chunking import BLOCK
from outlive.machine.checkpoint.numbers import Writer
from outlive.machine.checkpoint.tree import (
    DEEPEST,
    Enter,
    Extent,
    Kind,
    Leave,
    Link,
    Node,
    Owner,
    is_kept,
    write_record,
)

LARGEST_TREE = 256 * 1024 * 1024  # about two million files; it is held in memory

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WHITEOUT = os.makedev(0, 0)


class UpperWalk:
    """One walk over one upper directory. Drain `contents`, then take `tree`."""

    def __init__(self, upper: Path) -> None:
        self._upper = upper
        self._writer = Writer()
        self._nodes: dict[tuple[int, int], int] = {}  # files with several names, by device and inode

    @property
    def tree(self) -> bytes:
        return bytes(self._writer.content)

    def contents(self) -> Iterator[bytes]:
        """The bytes of all files, in the order of the tree."""
        folder = os.open(self._upper, _FOLDER)
        try:
            yield from self._walk(folder, b"", 1)
        finally:
            os.close(folder)

    def _walk(self, folder: int, name: bytes, depth: int) -> Iterator[bytes]:
        if depth > DEEPEST:
            raise ExhaustedError("checkpoint.too_deep", f"{_show(name)} lies more than {DEEPEST} folders deep.")
        write_record(self._writer, Enter(name, _owner(os.fstat(folder), folder)))
        for child in sorted(map(os.fsencode, os.listdir(folder))):
            info = os.stat(child, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                descriptor = os.open(child, _FOLDER, dir_fd=folder)
                try:
                    yield from self._walk(descriptor, child, depth + 1)
                finally:
                    os.close(descriptor)
            else:
                yield from self._node(folder, child, info)
            if len(self._writer.content) > LARGEST_TREE:
                raise ExhaustedError("checkpoint.too_many_files", "The machine has more files than a checkpoint holds.")
        write_record(self._writer, Leave())

    def _node(self, folder: int, name: bytes, info: os.stat_result) -> Iterator[bytes]:
        # Whiteouts share one inode among any number of names; they are as good when each is its own.
        is_linked = info.st_nlink > 1 and not stat.S_ISCHR(info.st_mode)
        identity = (info.st_dev, info.st_ino)
        if is_linked:
            if (node := self._nodes.get(identity)) is not None:
                write_record(self._writer, Link(name, node))
                return
            self._nodes[identity] = len(self._nodes)
        if stat.S_ISREG(info.st_mode):
            yield from self._file(folder, name, is_linked)
            return
        kind = _kind(info, name)
        target = os.readlink(name, dir_fd=folder) if kind == "symlink" else b""
        write_record(self._writer, Node(name, kind, _owner(info, None), is_linked, target=target))

    def _file(self, folder: int, name: bytes, is_linked: bool) -> Iterator[bytes]:
        descriptor = os.open(name, _FILE, dir_fd=folder)
        try:
            info = os.fstat(descriptor)
            extents = _extents(descriptor, info.st_size)
            write_record(
                self._writer, Node(name, "file", _owner(info, descriptor), is_linked, info.st_size, tuple(extents))
            )
            for offset, length in extents:
                yield from _read(descriptor, offset, length, name)
        finally:
            os.close(descriptor)


def _kind(info: os.stat_result, name: bytes) -> Kind:
    if stat.S_ISLNK(info.st_mode):
        return "symlink"
    if stat.S_ISFIFO(info.st_mode):
        return "fifo"
    if stat.S_ISSOCK(info.st_mode):
        return "socket"
    if stat.S_ISCHR(info.st_mode) and info.st_rdev == _WHITEOUT:
        return "whiteout"
    raise InvalidError("checkpoint.device", f"{_show(name)} is a device: a checkpoint holds none. Remove it.")


def _owner(info: os.stat_result, descriptor: int | None) -> Owner:
    # Links, pipes and sockets can have no attribute that is kept.
    names = sorted(map(os.fsencode, os.listxattr(descriptor))) if descriptor is not None else []
    attributes = tuple(
        (name, os.getxattr(descriptor, name)) for name in names if is_kept(name) and descriptor is not None
    )
    return Owner(stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, info.st_mtime_ns, attributes)


def _extents(descriptor: int, size: int) -> list[Extent]:
    """Where the file has bytes; the rest are holes."""
    found: list[Extent] = []
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                break
            raise
        at = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        if at > start:
            found.append(Extent(start, at - start))
    return found


def _read(descriptor: int, offset: int, length: int, name: bytes) -> Iterator[bytes]:
    while length:
        block = os.pread(descriptor, min(length, BLOCK), offset)
        if not block:
            raise ConflictError("checkpoint.changed", f"{_show(name)} became shorter while it was read.")
        yield block
        offset += len(block)
        length -= len(block)


def _show(name: bytes) -> str:
    return ascii(name[:100])[1:]
