"""Which process is meant: a pid and the moment it started, so that a pid used again is never mistaken for the old one.

Reads `/proc`. A process that has ended but was not yet collected by its parent (a zombie) counts as gone, though only
with its last thread: its first one may be a zombie while another still holds the open files, a listening socket say.
"""

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

POLL_S = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    pid: int
    started: int  # clock ticks between the boot and its start
    boot: str  # which boot: ticks begin again with the next


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def find(pid: int) -> Process | None:
    """The process that has this pid now."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program comes in parentheses and may hold anything, spaces and parentheses included.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1):
        return None
    return Process(pid, int(fields[19]), boot_id())


def is_alive(process: Process) -> bool:
    return find(process.pid) == process


def uptime_s(process: Process) -> float:
    """Seconds since it started."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, since_boot - process.started / _TICKS)


def send(process: Process, number: signal.Signals) -> bool:
    """Signal exactly this process; False if it is gone. Never hits a stranger that got its pid."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def end(processes: Iterable[Process], *, grace_s: float) -> list[Process]:
    """End them (SIGTERM, after `grace_s` SIGKILL) and wait until they are gone. Returns those that were alive."""
    ended = [process for process in processes if send(process, signal.SIGTERM)]
    if not wait_gone(ended, grace_s):
        for process in ended:
            send(process, signal.SIGKILL)
        wait_gone(ended, 5.0)
    return ended


def wait_gone(processes: Iterable[Process], within_s: float) -> bool:
    """Whether all of them were gone in time."""
    left = list(processes)
    deadline = time.monotonic() + within_s
    while left := [process for process in left if is_alive(process)]:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
