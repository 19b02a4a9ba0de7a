"""What the supervisor leaves for others to find it by: a lock that says it lives, and a record of its processes.

The lock is the truth (the kernel drops it with the process); the record only says where to look. Whoever reads the
record checks each process by pid and start (`proc.py`), so a stale one harms nobody.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from outlive.base import ConflictError
from outlive.processes.private_file import write_private
from outlive.processes.proc import Process, is_alive

_PATIENCE_S = 1.0
_POLL_S = 0.02


@dataclass(frozen=True)
class ChildRecord:
    name: str
    pid: int
    started: int
    restarts: int


@dataclass(frozen=True)
class StackRecord:
    pid: int
    started: int
    boot: str
    url: str | None  # on this host; None while it starts
    tls_cert: str | None
    children: tuple[ChildRecord, ...] = ()
    machines_off: str | None = None  # why this stack runs no machines; None if it does
    node_path: str | None = None  # where its node keeps its id and its machines; None in a record of an older version

    @property
    def supervisor(self) -> Process:
        return Process(self.pid, self.started, self.boot)

    @property
    def tls_path(self) -> Path | None:
        return Path(self.tls_cert) if self.tls_cert else None

    @property
    def is_running(self) -> bool:
        return is_alive(self.supervisor)

    def process_of(self, child: ChildRecord) -> Process:
        return Process(child.pid, child.started, self.boot)


def _path(run_path: Path) -> Path:
    return run_path / "supervisor.json"


def write_record(run_path: Path, record: StackRecord) -> None:
    """Only the holder of the lock writes."""
    write_private(_path(run_path), json.dumps(asdict(record)) + "\n")


def read_record(run_path: Path) -> StackRecord | None:
    try:
        data = json.loads(_path(run_path).read_text(encoding="utf-8"))
        children = tuple(ChildRecord(**child) for child in data.pop("children"))
        return StackRecord(**data, children=children)
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None


def read_running(run_path: Path) -> StackRecord | None:
    """The record, if its supervisor lives."""
    record = read_record(run_path)
    return record if record is not None and record.is_running else None


def remove_record(run_path: Path) -> None:
    """The stack is over: nobody listens at its sockets any more, also not at those of what was killed."""
    for socket in run_path.glob("*.sock*"):
        socket.unlink(missing_ok=True)
    _path(run_path).unlink(missing_ok=True)


@contextmanager
def hold_lock(run_path: Path) -> Iterator[None]:
    """Be the only supervisor of this home while inside; `conflict` if another one is.

    A lock that is held by nobody who says so in the record is waited for a moment: its holder is only looking
    (`is_locked`), or is just ending."""
    # The file stays when the lock is given back: removing it would let two hold "the" lock on two files.
    descriptor = os.open(run_path / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _try_lock(descriptor, fcntl.LOCK_EX):
            record = read_running(run_path)
            if record is not None or time.monotonic() > deadline:
                raise ConflictError("stack.running", _say_running(record))
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def is_locked(run_path: Path) -> bool:
    """Whether a supervisor of this home lives, whatever the record says."""
    try:
        descriptor = os.open(run_path / "supervisor.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _say_running(record: StackRecord | None) -> str:
    where = f" at {record.url} (pid {record.pid})" if record and record.url else ""
    return f"Outlive is already running{where}. Stop it with: outlive down"
