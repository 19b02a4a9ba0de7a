"""The name that the content of a tree gives itself: BLAKE3 over its sorted listing.

A line of the listing has the path, the type, the mode, the owner and the content or target. Times are no part of it:
the same tree unpacked twice has one name. Nothing is followed: a link counts as the text it is.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from outlive.base import BrokenError

_READ_BYTES = 1 << 20
_KINDS = {stat.S_IFDIR: b"d", stat.S_IFREG: b"f", stat.S_IFLNK: b"l", stat.S_IFIFO: b"p"}


class Listing(NamedTuple):
    digest: str
    entries: int
    bytes: int


def list_tree(tree: Path, also: bytes = b"") -> Listing:
    """Read the whole tree. `also` is hashed with it: what belongs to the content but is not in the tree."""
    hasher = blake3(also)
    entries = size = 0
    for relative, entry in _walk(tree):
        found = entry.stat(follow_symlinks=False)
        kind = _KINDS.get(stat.S_IFMT(found.st_mode))
        if kind is None:
            raise BrokenError("base.special_file", f"A device or socket got into a tree: {os.fsdecode(relative)!r}.")
        is_file = kind == b"f"
        content = _content(entry.path, found.st_size) if is_file else _target(entry) if kind == b"l" else b""
        facts = f"{stat.S_IMODE(found.st_mode):o} {found.st_uid} {found.st_gid}".encode()
        # Lengths before texts: no two trees can give the same bytes.
        hasher.update(b"%d %s %b %b %d %b\n" % (len(relative), relative, kind, facts, len(content), content))
        entries += 1
        size += found.st_size if is_file else 0
    return Listing(hasher.hexdigest(), entries, size)


def _walk(tree: Path) -> Iterator[tuple[bytes, "os.DirEntry[bytes]"]]:
    """Every entry below the root, folders before what is in them, in the order of their bytes."""
    waiting: list[bytes] = [b""]
    root = os.fsencode(tree)
    while waiting:
        folder = waiting.pop()
        with os.scandir(os.path.join(root, folder) if folder else root) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            relative = folder + b"/" + entry.name if folder else entry.name
            yield relative, entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append(relative)


def _content(path: bytes, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if size <= _READ_BYTES:
            return blake3(file.readall()).digest()
        hasher = blake3(max_threads=blake3.AUTO)
        while chunk := file.read(_READ_BYTES):
            hasher.update(chunk)
        return hasher.digest()


def _target(entry: "os.DirEntry[bytes]") -> bytes:
    return os.readlink(entry.path)
