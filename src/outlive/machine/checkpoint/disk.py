"""Work on the local disk: in a thread, its errors in our words. And the image files of a machine's memory.

Invariant: an image file is named by plain letters, so that no manifest can name a file outside the image folder.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
from blake3 import blake3

from outlive.base import BrokenError, ConflictError, ExhaustedError, InvalidError, OutliveError, UnavailableError
from outlive.machine.checkpoint.chunking import BLOCK
from outlive.machine.checkpoint.planting import read_at, write_at

_IMAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_IMAGES = 16
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

T = TypeVar("T")


async def in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
    """Not abandoned when cancelled: what it works on would be taken away under it. It is bounded work."""
    try:
        return await anyio.to_thread.run_sync(work, limiter=limiter)
    except OSError as error:
        raise explain(error) from error


def explain(error: OSError) -> OutliveError:
    if error.errno in _FULL:
        return ExhaustedError("checkpoint.no_room", "There is no room left for the checkpoint's files on this node.")
    return UnavailableError(
        "checkpoint.disk", f"The files of the machine or its checkpoint cannot be used: {error.strerror}."
    )


def image_files(folder: Path) -> list[Path]:
    """What the sandbox wrote of its memory, in order of name."""
    found = sorted(folder.iterdir())
    for path in found:
        if not _IMAGE_NAME.fullmatch(path.name) or not stat.S_ISREG(path.lstat().st_mode):
            raise InvalidError("checkpoint.image", f"{path.name!r} is no file of a memory image.")
    if not found or len(found) > _MOST_IMAGES:
        raise InvalidError("checkpoint.image", f"A memory image has 1 to {_MOST_IMAGES} files, not {len(found)}.")
    return found


def read_blocks(path: Path) -> Iterator[bytes]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while block := _read_block(descriptor):
            yield block
    finally:
        os.close(descriptor)


def _read_block(descriptor: int) -> bytes:
    """A whole block unless the file ends: pages must not be split."""
    block = os.read(descriptor, BLOCK)
    while 0 < len(block) < BLOCK and (more := os.read(descriptor, BLOCK - len(block))):
        block += more
    return block


def slices_of(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), BLOCK):
        yield content[start : start + BLOCK]


class Images:
    """A folder of image files under way. It has its name when it is whole; `discard` at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._partial = folder.with_name(f"{folder.name}.partial")
        self._open: dict[str, int] = {}

    def prepare(self, sizes: dict[str, int]) -> None:
        if os.path.lexists(self._folder):
            raise ConflictError("checkpoint.target_exists", "The folder that was to be made is there already.")
        if os.path.lexists(self._partial):
            shutil.rmtree(self._partial)
        self._partial.mkdir(mode=0o700)
        for name, size in sizes.items():
            if not _IMAGE_NAME.fullmatch(name):
                raise BrokenError("checkpoint.damaged", f"{name!r} is no name of an image file.")
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._open[name] = os.open(self._partial / name, flags, 0o600)
            os.ftruncate(self._open[name], size)  # what is never written stays a hole: zeros cost nothing

    def sink(self, name: str) -> Callable[[int, memoryview], None]:
        descriptor = self._open[name]
        return lambda offset, content: write_at(descriptor, offset, content)

    def hashes(self) -> dict[str, str]:
        return {name: self._hash(descriptor) for name, descriptor in self._open.items()}

    def _hash(self, descriptor: int) -> str:
        hasher = blake3()
        for block in read_at(descriptor, 0, os.fstat(descriptor).st_size):
            hasher.update(block)
        return hasher.hexdigest()

    def finish(self) -> None:
        self._close()
        self._partial.rename(self._folder)

    def discard(self) -> None:
        self._close()
        with suppress(FileNotFoundError):
            shutil.rmtree(self._partial)

    def _close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
