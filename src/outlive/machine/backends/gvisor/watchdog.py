"""The watchdog of a node: a program of its own that stops all machines of the node when the node's lease is over,
whether the node has lost contact, was stopped, or is dead.

Rule 1: it alone turns the switch, the freezer of the cgroup above all sandboxes of the node. The node only writes down
        until when its machines may run. So a node that was stopped in the middle of anything and runs again, late, has
        no way to let its machines run: what it wrote is over.
Rule 2: it lives while the node or any sandbox of it lives; there is one for each node.
Rule 3: standard library alone, run by its path: it is small, starts at once, and depends on nothing that may change.
"""

import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HELD = "lease"  # a cgroup that is never filled: it keeps the one above it from being removed
_LOOK_EVERY_S = 0.2
_TRIES = 50


class Word(NamedTuple):
    """What the node wrote last."""

    until: float  # of `now`
    may_run: bool


def now() -> float:
    """Counts on while the host sleeps: others may have taken its machines meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def write_word(path: Path, word: Word) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{word.until!r} {int(word.may_run)}\n", encoding="ascii")
    os.replace(fresh, path)


def read_word(path: Path) -> Word:
    """Nothing that can be read: nothing may run."""
    try:
        until, may_run = path.read_text(encoding="ascii").split()
        return Word(float(until), may_run == "1")
    except (OSError, ValueError):
        return Word(0.0, False)


def try_lock(path: Path) -> int | None:
    """An open file that holds the lock for as long as it is open; None if somebody else has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


class Switch(NamedTuple):
    """The freezer of one cgroup and all below it."""

    folder: Path
    file: str
    frozen: str
    thawed: str

    def turn(self, is_frozen: bool) -> None:
        """What fails is tried again with the next look."""
        wanted = self.frozen if is_frozen else self.thawed
        with suppress(OSError):
            if (self.folder / self.file).read_text().strip() != wanted:
                (self.folder / self.file).write_text(wanted)

    def hold(self) -> None:
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):  # the folder above, being empty, was removed just now
                (self.folder / HELD).mkdir(parents=True, exist_ok=True)
                return
        raise OSError(f"{self.folder} goes away")

    def has_sandboxes(self) -> bool:
        return any(entry.is_dir() and entry.name != HELD for entry in self.folder.iterdir())

    def let_go(self) -> None:
        for folder in (self.folder / HELD, self.folder, self.folder.parent):
            with suppress(OSError):  # others are in it
                folder.rmdir()


def watch(node_path: Path, switch: Switch) -> None:
    while True:
        word = read_word(node_path / "lease")
        left_s = word.until - now()
        switch.turn(is_frozen=left_s <= 0 or not word.may_run)
        node_lock = None
        is_node_dead = True
        with suppress(FileNotFoundError):  # its folder was removed: there is no node any more
            node_lock = try_lock(node_path / "node.lock")
            is_node_dead = node_lock is not None
        if is_node_dead and not switch.has_sandboxes():
            switch.let_go()
            return  # with the lock: the next node starts a new watchdog when we are gone
        if node_lock is not None:
            os.close(node_lock)
        time.sleep(min(_LOOK_EVERY_S, left_s) if left_s > 0 else _LOOK_EVERY_S)


def main() -> int:
    node_path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    switch = Switch(folder, *sys.argv[3:6])
    watchdog_lock = try_lock(node_path / "watchdog.lock")
    if watchdog_lock is None:
        return 0  # there is one
    switch.hold()
    if os.fork():
        os._exit(0)  # from here on it is there; whoever started us does not wait any longer
    with suppress(OSError):  # the last that a host without memory may end
        Path("/proc/self/oom_score_adj").write_text("-1000")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.chdir("/")
    watch(node_path, switch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
