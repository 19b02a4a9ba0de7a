"""Writes an upper directory from a tree of records and the stream of its files' bytes.

Files are first written under numbers in a staging folder beside the tree, in whatever order their bytes come. Then the
tree is made from its root down: a folder is made, opened without following anything, and what belongs into it is put
there by descriptor and name.

Invariant 1: nothing outside the target is touched, whatever names, links and modes the machine chose: no path with
more than one step is ever resolved, and no link is followed.
Invariant 2: the target appears under its name when it is whole, and not before.
"""

import os
import shutil
import stat
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from outlive.base import ConflictError
from outlive.machine.checkpoint.chunking import BLOCK
from outlive.machine.checkpoint.tree import Enter, Leave, Link, Node, Owner, read_records

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class _Stretch(NamedTuple):
    """Bytes of a file that lie together in the stream."""

    file: int
    offset: int
    length: int


class Planter:
    """In this order: `prepare`, `write` (from any thread, in any order), `hash`, `finish`; `discard` at any time."""

    def __init__(self, tree: bytes, upper: Path, what: str) -> None:
        self._records = list(read_records(tree, what))
        self._upper = upper
        self._partial = upper.with_name(f"{upper.name}.partial")
        self._staging = upper.with_name(f"{upper.name}.files")
        self._files = [record for record in self._records if isinstance(record, Node) and record.kind == "file"]
        self._stretches = [
            _Stretch(number, *extent) for number, file in enumerate(self._files) for extent in file.extents
        ]
        self._starts = [0, *accumulate(stretch.length for stretch in self._stretches)]
        self._staging_fd = -1

    @property
    def length(self) -> int:
        """Of the stream of bytes."""
        return self._starts[-1]

    def prepare(self) -> None:
        """Make all files, with their sizes and without their bytes."""
        if os.path.lexists(self._upper):
            raise ConflictError("checkpoint.target_exists", "The folder that was to be made is there already.")
        self._remove()
        self._staging.mkdir(mode=0o700)
        self._staging_fd = os.open(self._staging, _FOLDER)
        for number, file in enumerate(self._files):
            descriptor = os.open(str(number), _NEW_FILE, 0o600, dir_fd=self._staging_fd)
            try:
                if file.size:
                    os.ftruncate(descriptor, file.size)
            finally:
                os.close(descriptor)

    def write(self, offset: int, content: memoryview) -> None:
        """`content` lies at `offset` of the stream."""
        at = bisect_right(self._starts, offset) - 1
        while len(content):
            stretch = self._stretches[at]
            inside = offset - self._starts[at]
            piece = content[: stretch.length - inside]
            descriptor = os.open(str(stretch.file), _OLD_FILE, dir_fd=self._staging_fd)
            try:
                write_at(descriptor, stretch.offset + inside, piece)
            finally:
                os.close(descriptor)
            offset, content, at = offset + len(piece), content[len(piece) :], at + 1

    def hash(self) -> str:
        """Of the stream of bytes, as it now lies in the files."""
        hasher = blake3()
        for number, file in enumerate(self._files):
            if not file.extents:
                continue
            descriptor = os.open(str(number), _OLD_FILE, dir_fd=self._staging_fd)
            try:
                for extent in file.extents:
                    for block in read_at(descriptor, *extent):
                        hasher.update(block)
            finally:
                os.close(descriptor)
        return hasher.hexdigest()

    def finish(self) -> None:
        """Make the tree, put the files into it, and give it its name."""
        self._partial.mkdir(mode=0o700)
        builder = _TreeBuilder(self._staging_fd, os.open(self._partial, _FOLDER))
        try:
            for record in self._records:
                builder.add(record)
        finally:
            builder.close()
        os.close(self._staging_fd)
        self._staging_fd = -1
        shutil.rmtree(self._staging)
        self._partial.rename(self._upper)

    def discard(self) -> None:
        """Remove what is not finished."""
        if self._staging_fd >= 0:
            os.close(self._staging_fd)
            self._staging_fd = -1
        self._remove()

    def _remove(self) -> None:
        for left in (self._partial, self._staging):
            if os.path.lexists(left):
                shutil.rmtree(left)  # follows no link


class _TreeBuilder:
    def __init__(self, staging: int, root: int) -> None:
        self._staging = staging
        self._open: list[tuple[int, Owner]] = []
        self._root: int | None = root
        self._files = 0
        self._linked: list[str] = []

    def add(self, record: Enter | Leave | Node | Link) -> None:
        match record:
            case Enter():
                self._open.append((self._enter(record.name), record.owner))
            case Leave():
                # Its own owner, mode and time come last: putting things into it would change them.
                descriptor, owner = self._open.pop()
                try:
                    apply(descriptor, owner)
                finally:
                    os.close(descriptor)
            case Node(kind="file"):
                self._put_file(record)
            case Node():
                self._put_special(record)
            case Link():
                self._link(self._linked[record.node], record.name)

    def close(self) -> None:
        left = [descriptor for descriptor, _ in self._open]
        if self._root is not None:
            left.append(self._root)
        for descriptor in left:
            os.close(descriptor)

    def _enter(self, name: bytes) -> int:
        if self._root is not None:
            root, self._root = self._root, None
            return root
        folder = self._open[-1][0]
        os.mkdir(name, 0o700, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)

    def _put_file(self, node: Node) -> None:
        staged = str(self._files)
        self._files += 1
        descriptor = os.open(staged, _OLD_FILE, dir_fd=self._staging)
        try:
            apply(descriptor, node.owner)
        finally:
            os.close(descriptor)
        if node.is_linked:
            self._linked.append(staged)
            self._link(staged, node.name)
        else:
            os.rename(staged, node.name, src_dir_fd=self._staging, dst_dir_fd=self._open[-1][0])

    def _put_special(self, node: Node) -> None:
        folder = self._open[-1][0]
        name: bytes | str = node.name
        if node.is_linked:  # made in the staging folder, from where each of its names is linked
            folder, name = self._staging, f"n{len(self._linked)}"
            self._linked.append(name)
        if node.kind == "symlink":
            os.symlink(node.target, name, dir_fd=folder)
        else:
            kinds = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK, "whiteout": stat.S_IFCHR}
            os.mknod(name, kinds[node.kind] | 0o600, os.makedev(0, 0), dir_fd=folder)
        os.chown(name, node.owner.uid, node.owner.gid, dir_fd=folder, follow_symlinks=False)
        if node.kind != "symlink":
            # It is there since the last line but two, and is no link: so this one, which can only follow, does not.
            os.chmod(name, node.owner.mode, dir_fd=folder)
        times = (node.owner.mtime_ns, node.owner.mtime_ns)
        os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)
        if isinstance(name, str):
            self._link(name, node.name)

    def _link(self, staged: str, name: bytes) -> None:
        os.link(staged, name, src_dir_fd=self._staging, dst_dir_fd=self._open[-1][0], follow_symlinks=False)


def apply(descriptor: int, owner: Owner) -> None:
    """Owner first: a change of owner clears setuid bits and capabilities."""
    os.fchown(descriptor, owner.uid, owner.gid)
    os.fchmod(descriptor, owner.mode)
    for name, value in owner.attributes:
        os.setxattr(descriptor, name, value)
    os.utime(descriptor, ns=(owner.mtime_ns, owner.mtime_ns))


def write_at(descriptor: int, offset: int, content: memoryview) -> None:
    while len(content):
        written = os.pwrite(descriptor, content, offset)
        offset, content = offset + written, content[written:]


def read_at(descriptor: int, offset: int, length: int) -> Iterator[bytes]:
    """Up to `length` bytes from `offset`, in blocks."""
    while length > 0:
        block = os.pread(descriptor, min(length, BLOCK), offset)
        if not block:
            return
        yield block
        offset, length = offset + len(block), length - len(block)
