"""What the numbers were measured on. No names: what matters is cores, versions, and how fast the disk syncs."""

import os
import platform
import sqlite3
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

_SYNCS = 200


@dataclass(frozen=True)
class Facts:
    cores: int
    memory_gib: float
    kernel: str
    python: str
    sqlite: str
    sync_ms: float
    is_quick: bool

    @property
    def line(self) -> str:
        quick = " Quick run: it shows that everything works, its numbers mean little." if self.is_quick else ""
        return (
            f"{self.cores} cores, {self.memory_gib:.0f} GiB, Linux {self.kernel}, Python {self.python}, "
            f"SQLite {self.sqlite}; writing and syncing 4 KiB takes {self.sync_ms:.2f} ms here.{quick}"
        )

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def _sync_ms(folder: Path) -> float:
    taken = []
    descriptor = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for _ in range(_SYNCS):
            started_at = time.perf_counter()
            os.write(descriptor, b"x" * 4096)
            os.fdatasync(descriptor)
            taken.append(time.perf_counter() - started_at)
    finally:
        os.close(descriptor)
    return median(taken) * 1000


def gather_facts(folder: Path, *, is_quick: bool) -> Facts:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Facts(
        cores=len(os.sched_getaffinity(0)),
        memory_gib=pages / 2**30,
        kernel=".".join(platform.release().split(".")[:2]),
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        sync_ms=_sync_ms(folder),
        is_quick=is_quick,
    )
