"""What /proc says: the processes of this machine, the ports they listen on, and what would spoil a checkpoint."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

from outlive.guest import words as read
from outlive.guest.link import Ask
from outlive.guest.wire import Words

_PAGE = 100
_ARGV_BYTES = 256
_LISTENING = "0A"
_PORT_LIMIT = 1000
_FOUND_LIMIT = 100
_DELETED = " (deleted)"
_NAMELESS = ("/memfd:", "/SYSV", "/dev/zero")  # memory that never had a file


def verbs() -> dict[str, Callable[[Ask], None]]:
    return {"processes": _processes, "ports": _ports}


def all_pids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _text(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(64 * 1024).decode("utf-8", "replace")


def _processes(ask: Ask) -> None:
    after = read.whole(ask.words, "after", 0)
    pids = [pid for pid in all_pids() if pid > after]
    rows = [row for pid in pids[:_PAGE] if (row := _describe(pid)) is not None]
    ask.answer({"processes": rows, "last": pids[:_PAGE][-1] if pids else None, "is_last": len(pids) <= _PAGE})


def _describe(pid: int) -> Words | None:
    """One process; None if it is gone."""
    try:
        # The name stands in brackets and may hold anything, also brackets.
        name, _, rest = _text(f"/proc/{pid}/stat").partition("(")[2].rpartition(")")
        fields = rest.split()
        argv = _text(f"/proc/{pid}/cmdline").rstrip("\0").replace("\0", " ")
        return {
            "pid": pid,
            "parent": int(fields[1]),
            "uid": os.stat(f"/proc/{pid}").st_uid,
            "state": fields[0],
            "name": name[:64],
            "argv": argv[:_ARGV_BYTES],
            "memory": int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        }
    except (OSError, IndexError, ValueError):
        return None


def _ports(ask: Ask) -> None:
    ports = sorted({*_listening("/proc/net/tcp"), *_listening("/proc/net/tcp6")})
    ask.answer({"ports": ports[:_PORT_LIMIT]})


def _listening(path: str) -> Iterator[int]:
    try:
        lines = _text(path).splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if len(fields) > 3 and fields[3] == _LISTENING:
            yield int(fields[1].rpartition(":")[2], 16)


def find_unsavable() -> list[str]:
    """Files that are deleted and still in use, outside tmpfs: gVisor cannot save a memory that refers to them."""
    in_memory = (*(f"{place.rstrip('/')}/" for place in _tmpfs_places()), *_NAMELESS)
    found: list[str] = []
    for pid in all_pids():
        for what in sorted(set(_deleted_of(pid))):
            if not what.startswith(in_memory) and len(found) < _FOUND_LIMIT:
                found.append(f"{pid}: {what[:400]}")
    return found


def _tmpfs_places() -> Iterator[str]:
    for line in _text("/proc/mounts").splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[2] in ("tmpfs", "devtmpfs"):
            yield fields[1]


def _deleted_of(pid: int) -> Iterator[str]:
    links = [f"/proc/{pid}/cwd", f"/proc/{pid}/exe"]
    with suppress(OSError):
        links += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    for link in links:
        try:
            target = os.readlink(link)
            if target.startswith("/") and target.endswith(_DELETED) and not _is_there(target, os.stat(link)):
                yield target.removesuffix(_DELETED)
        except OSError:
            continue
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            for line in file:
                target = "/" + os.fsdecode(line).rstrip("\n").partition("/")[2]
                if target.endswith(_DELETED) and not os.path.lexists(target):
                    yield target.removesuffix(_DELETED)
    except OSError:
        return


def _is_there(target: str, found: os.stat_result) -> bool:
    """A name may end like this and be there. (The count of links does not tell: gVisor leaves it as it was.)"""
    try:
        named = os.lstat(target)
    except OSError:
        return False
    return (named.st_dev, named.st_ino) == (found.st_dev, found.st_ino)
