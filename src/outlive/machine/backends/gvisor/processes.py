"""Processes of the host, read from `/proc`: which one is meant, and whether it still lives."""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from outlive.machine.backends.gvisor.record import Process


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def find_process(pid: int) -> Process | None:
    """The one that has this pid now. A zombie is gone, though only with its last thread."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program comes in parentheses and may hold anything, parentheses included.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1):
        return None
    return Process(pid=pid, started=int(fields[19]), boot=boot_id())


def is_alive(process: Process) -> bool:
    return find_process(process.pid) == process


def arguments_of(pid: int) -> list[str]:
    """Empty for one that is gone, and for a thread of the kernel."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def find_by_argument(*arguments: str) -> list[int]:
    """Every process that was started with exactly one of these arguments."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if not set(arguments).isdisjoint(arguments_of(pid))]


def kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
