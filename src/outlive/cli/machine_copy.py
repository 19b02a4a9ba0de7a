"""`outlive machine cp`: files and directories into a machine and out of it, one file at a time.

Rule 1: what a machine says is the name of a file is used as a name only: what would lead elsewhere here is left out.
Rule 2: nothing is followed that may point anywhere: symlinks and special files are left out, and that is said.
"""

import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread

from outlive.base import InvalidError, NotFoundError
from outlive.client import AsyncClient, AsyncMachine

PATIENCE_S = 3.0
DEPTH_LIMIT = 64
_CHUNK = 256 * 1024
_IN_MACHINE = re.compile(r"(mach_[0-9a-f]{32}):(.*)", re.DOTALL)


class InMachine(NamedTuple):
    machine: str
    path: str


class Copied(NamedTuple):
    files: int
    size: int
    left_out: tuple[str, ...]


def parse_place(text: str) -> InMachine | Path:
    """`mach_...:path`, or a path of this host."""
    found = _IN_MACHINE.fullmatch(text)
    if found is None:
        return Path(text)
    return InMachine(found[1], found[2].rstrip("/") or ("/" if found[2] else "."))


def is_plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def copy(source: str, target: str) -> Copied:
    origin, goal = parse_place(source), parse_place(target)
    if isinstance(origin, InMachine) and isinstance(goal, Path):
        return anyio.run(_copy_out, origin, goal)
    if isinstance(origin, Path) and isinstance(goal, InMachine):
        return anyio.run(_copy_in, origin, goal)
    raise InvalidError("cli.usage", "One of both is a path here, the other M:PATH in a machine.")


class _Tally:
    def __init__(self) -> None:
        self.files = 0
        self.size = 0
        self.left_out: list[str] = []

    def leave_out(self, what: str, why: str) -> None:
        self.left_out.append(what)
        print(f"outlive: left out {what!r}: {why}", file=sys.stderr)

    def to_copied(self) -> Copied:
        return Copied(self.files, self.size, tuple(self.left_out))


# ── into a machine ──


async def _copy_in(origin: Path, goal: InMachine) -> Copied:
    if not await anyio.to_thread.run_sync(origin.exists):
        raise NotFoundError("cli.no_file", f"There is no {str(origin)!r}.")
    tally = _Tally()
    async with AsyncClient(patience_s=PATIENCE_S) as client:
        machine = await client.machines.get(goal.machine)
        target = goal.path
        if await _is_directory(machine, target):
            target = f"{target.rstrip('/')}/{(await anyio.to_thread.run_sync(origin.resolve)).name}"
        await _put(machine, origin, target, tally, is_named=True)
    return tally.to_copied()


async def _is_directory(machine: AsyncMachine, path: str) -> bool:
    try:
        return (await machine.stat_file(path)).kind == "directory"
    except NotFoundError:
        return False


class _Here(NamedTuple):
    kind: str
    mode: int
    names: tuple[str, ...]  # of what is in a directory


def _look(path: Path, *, follow: bool) -> _Here:
    found = path.stat(follow_symlinks=follow)
    if stat.S_ISLNK(found.st_mode):
        return _Here("link", 0, ())
    if stat.S_ISDIR(found.st_mode):
        return _Here("directory", 0, tuple(sorted(os.listdir(path))))
    return _Here("file" if stat.S_ISREG(found.st_mode) else "special file", found.st_mode & 0o777, ())


async def _put(machine: AsyncMachine, origin: Path, target: str, tally: _Tally, *, is_named: bool = False) -> None:
    # What a person named is followed; what lies below it is not.
    here = await anyio.to_thread.run_sync(lambda: _look(origin, follow=is_named))
    if here.kind == "directory":
        for name in here.names:
            await _put(machine, origin / name, f"{target.rstrip('/')}/{name}", tally)
    elif here.kind == "file":
        tally.size += await machine.write_file(target, _pieces(origin), mode=here.mode)
        tally.files += 1
    else:
        tally.leave_out(str(origin), f"it is a {here.kind}")


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as file:
        while piece := await file.read(_CHUNK):
            yield piece


# ── out of a machine ──


async def _copy_out(origin: InMachine, goal: Path) -> Copied:
    tally = _Tally()
    async with AsyncClient(patience_s=PATIENCE_S) as client:
        machine = await client.machines.get(origin.machine)
        entry = await machine.stat_file(origin.path)
        target = goal
        if await anyio.to_thread.run_sync(goal.is_dir):
            name = origin.path.rstrip("/").rpartition("/")[2]
            target = goal / (name if is_plain_name(name) else origin.machine)
        await _get(machine, origin.path, entry.kind, entry.mode, target, tally, 0)
    return tally.to_copied()


async def _get(machine: AsyncMachine, path: str, kind: str, mode: int, target: Path, tally: _Tally, depth: int) -> None:
    if kind == "directory" and depth < DEPTH_LIMIT:
        await anyio.to_thread.run_sync(lambda: target.mkdir(exist_ok=True))
        for entry in await machine.list_files(path):
            if is_plain_name(entry.name):
                below = f"{path.rstrip('/')}/{entry.name}"
                await _get(machine, below, entry.kind, entry.mode, target / entry.name, tally, depth + 1)
            else:
                tally.leave_out(entry.name, "it is no name")
    elif kind == "file":
        tally.size += await _download(machine, path, mode, target)
        tally.files += 1
    else:
        tally.leave_out(path, "it is a link" if kind == "symlink" else f"it is a {kind}")


async def _download(machine: AsyncMachine, path: str, mode: int, target: Path) -> int:
    """Whole or not at all, and never through a link that lies in the way."""
    waiting = target.with_name(f".{target.name[:200]}.part")
    size = 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        descriptor = os.open(waiting, flags, 0o600)
        async with anyio.wrap_file(os.fdopen(descriptor, "wb")) as file:
            async for piece in machine.iter_file(path):
                size += len(piece)
                await file.write(piece)
        # Rights to run as somebody else are not for a machine to hand out.
        os.chmod(waiting, mode & 0o777)
        os.replace(waiting, target)
    except OSError as error:
        raise InvalidError("cli.not_written", f"{str(target)!r} cannot be written: {error.strerror}.") from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(waiting)
    return size
