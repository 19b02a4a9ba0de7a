"""A folder of trees, each under the name of its content. Two processes may use it at once.

    <cache>/<key>/tree          what was made; never changed afterwards
    <cache>/<key>/<record>      what is known of it (JSON)
    <cache>/.known/<name>       the key that a recipe gave last time: the second call need not make anything
    <cache>/.making-*           being made; after a crash, swept by the next maker
    <cache>/.lock               makers and removers take turns

Rule 1: a key is there whole or not at all: a tree is made under another name, flushed, then renamed.
Rule 2: readers take no lock.
Rule 3: only root gets in: what an archive brings (setuid programs of a base, files that anybody may write) must not
        be within reach of other users of the host.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from outlive.base import BrokenError, ConflictError, DeadlineError, DeniedError, NotFoundError
from outlive.machine.backends.bases.listing import list_tree

Say = Callable[[str], None]

KEY_LENGTH = 32
_TURN_WITHIN_S = 3_600.0
_LOOK_EVERY_S = 0.2
_MAKING = ".making-"
_REMOVALS = 10


class Record(NamedTuple):
    """What is written beside a tree."""

    key: str
    kind: str
    reference: str
    fingerprint: str
    entries: int
    bytes: int
    env: tuple[tuple[str, str], ...] = ()


class TreeCache:
    def __init__(self, folder: Path, record_name: str) -> None:
        self.folder = folder
        self._record_name = record_name

    def tree_of(self, key: str) -> Path:
        return self.folder / key / "tree"

    def find(self, key: str) -> Record | None:
        try:
            text = (self.folder / key / self._record_name).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            raise _only_root(self.folder) from None
        try:
            fields = json.loads(text)
            fields["env"] = tuple((name, value) for name, value in fields["env"])
            return Record(**fields)
        except (ValueError, TypeError, KeyError):
            raise BrokenError(
                "base.damaged", f"What is known of base {key!r} is damaged: remove it (outlive base remove {key})."
            ) from None

    def find_named(self, name: str) -> Record | None:
        """The tree that a recipe led to before, if it is still there."""
        try:
            key = (self.folder / ".known" / _file_name(name)).read_text().strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            raise _only_root(self.folder) from None
        return self.find(key) if key else None

    def list(self) -> list[Record]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if not name.startswith("."))
        except FileNotFoundError:
            return []
        except PermissionError:
            raise _only_root(self.folder) from None
        return [record for name in names if (record := self.find(name)) is not None]

    @contextlib.contextmanager
    def making(self, say: Say) -> Iterator[Path]:
        """One's turn to make something: an empty folder, gone afterwards unless what is in it was published."""
        with self._turn(say):
            self._sweep(say)
            made = self.folder / f"{_MAKING}{secrets.token_hex(8)}"
            made.mkdir(mode=0o700)
            try:
                yield made
            finally:
                remove_tree(made)

    def publish(self, made: Path, name: str, *, kind: str, reference: str, env: tuple[tuple[str, str], ...]) -> Record:
        """Give `made/tree` its key, and let `name` lead to it. Only within `making`."""
        listing = list_tree(made / "tree", also=json.dumps(env).encode())
        key = listing.digest[:KEY_LENGTH]
        record = Record(key, kind, reference, f"blake3:{listing.digest}", listing.entries, listing.bytes, env)
        if (known := self.find(key)) is not None:
            record = known  # somebody made the same content by another recipe
        else:
            place = made / "whole"
            place.mkdir(mode=0o700)
            (made / "tree").rename(place / "tree")
            (place / self._record_name).write_text(json.dumps(record._asdict()) + "\n")
            flush(made)
            if (self.folder / key).exists():  # without a record: nothing of ours stands on it
                remove_tree(self.folder / key)
            place.rename(self.folder / key)
        self._point(name, record.key)
        return record

    def _point(self, name: str, key: str) -> None:
        known = self.folder / ".known"
        known.mkdir(mode=0o700, exist_ok=True)
        waiting = known / f".{_file_name(name)}.new"
        waiting.write_text(f"{key}\n")
        flush(known)
        waiting.rename(known / _file_name(name))

    def remove(self, key: str, say: Say) -> None:
        """Remove a tree. Refused while something is mounted on it."""
        with self._turn(say):
            place = self.folder / key
            if not place.is_dir():
                raise NotFoundError("base.not_found", f"There is no base {key!r}: `outlive base list` shows them.")
            if is_mounted_on(place):
                raise ConflictError("base.in_use", f"A machine on this host runs on base {key!r}: delete it first.")
            gone = self.folder / f"{_MAKING}{secrets.token_hex(8)}"
            place.rename(gone)
            remove_tree(gone)

    @contextlib.contextmanager
    def _turn(self, say: Say) -> Iterator[None]:
        if os.geteuid() != 0:
            raise _only_root(self.folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _wait_for(descriptor, self.folder, say)
            yield
        finally:
            os.close(descriptor)

    def _sweep(self, say: Say) -> None:
        for path in self.folder.glob(f"{_MAKING}*"):
            say("sweeping what a maker that was cut off left")
            remove_tree(path)


def _only_root(folder: Path) -> DeniedError:
    return DeniedError("base.needs_root", f"Only root may use {str(folder)!r}: run this as root.")


def _wait_for(descriptor: int, folder: Path, say: Say) -> None:
    deadline = time.monotonic() + _TURN_WITHIN_S
    is_told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not is_told:
                say("waiting for another process that makes a base")
                is_told = True
        else:
            return
        if time.monotonic() > deadline:
            raise DeadlineError("base.busy", f"Somebody has been making a base in {str(folder)!r} for an hour.")
        time.sleep(_LOOK_EVERY_S)


def _file_name(name: str) -> str:
    return blake3(name.encode()).hexdigest()[:KEY_LENGTH]


def flush(folder: Path) -> None:
    """Everything written to the filesystem of `folder` is on disk afterwards. (One call, not one for each file.)"""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(descriptor)


def mounts_below(folder: Path) -> list[str]:
    """What is mounted at or below `folder`, the innermost first."""
    prefix = os.fspath(folder.resolve())
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        points = [_unescaped(line.split()[4]) for line in file]
    return sorted((point for point in points if f"{point}/".startswith(f"{prefix}/")), key=len, reverse=True)


def is_mounted_on(folder: Path) -> bool:
    """Whether an overlay of this mount namespace has a lower layer at or below `folder`."""
    prefix = os.fspath(folder.resolve())
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return any(f"{prefix}/" in _unescaped(line) for line in file)


def _unescaped(text: str) -> str:
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def remove_tree(path: Path) -> None:
    """Remove a tree that may be hostile, and never what a maker that died has left mounted in it."""
    for point in mounts_below(path):
        umount = ["/usr/bin/umount", "--lazy", "--", point]
        subprocess.run(umount, check=True, capture_output=True, timeout=30)  # noqa: S603
    for _ in range(_REMOVALS):
        if path.is_symlink() or not path.is_dir():
            return
        try:
            return shutil.rmtree(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise
            time.sleep(_LOOK_EVERY_S)  # the last process of a maker that was killed is just going
    raise BrokenError("base.not_removed", f"{str(path)!r} cannot be removed: somebody writes into it.")
