"""The node's side of its watchdog: says until when the machines here may run, and sees to it that a watchdog lives."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from outlive.base import ConflictError, UnavailableError
from outlive.machine.backends.gvisor import watchdog
from outlive.machine.backends.gvisor.commands import run_command

_LOCK_WITHIN_S = 10.0  # the node before us may still be ending
_LOOK_S = 0.05
_START_S = 10.0
_END_S = 2.0


class LeaseGuard:
    """Made by `open_guard`."""

    def __init__(self, node_path: Path, switch: watchdog.Switch) -> None:
        self._node_path = node_path
        self._switch = switch

    def now(self) -> float:
        return watchdog.now()

    async def keep(self, until: float, *, may_run: bool) -> None:
        watchdog.write_word(self._node_path / "lease", watchdog.Word(until, may_run))
        if (lock := watchdog.try_lock(self._node_path / "watchdog.lock")) is not None:
            os.close(lock)
            await self._start()

    async def _start(self) -> None:
        argv = [sys.executable, "-I", "-S", watchdog.__file__, str(self._node_path), *map(str, self._switch)]
        ended = await run_command(argv, output=self._node_path / "watchdog.log", deadline_s=_START_S)
        if ended.code != 0:
            raise UnavailableError("node.no_watchdog", f"The watchdog of this node did not start: {ended.said}.")


@asynccontextmanager
async def open_guard(node_path: Path, switch: watchdog.Switch) -> AsyncIterator[LeaseGuard]:
    """One at a time for each node. Leaving it leaves the watchdog to what still runs: it goes by the last word. Where
    nothing does it ends, and whoever stopped the node finds no process of it."""
    lock: int | None = None
    with anyio.move_on_after(_LOCK_WITHIN_S):
        while (lock := watchdog.try_lock(node_path / "node.lock")) is None:  # noqa: ASYNC110
            await anyio.sleep(_LOOK_S)
    if lock is None:
        raise ConflictError(
            "node.taken", f"Another node runs in {str(node_path)!r}: stop it, or set OUTLIVE_NODE__PATH."
        )
    try:
        yield LeaseGuard(node_path, switch)
    finally:
        os.close(lock)
        with anyio.move_on_after(_END_S, shield=True):
            while _watches_nothing(node_path, switch):  # noqa: ASYNC110
                await anyio.sleep(_LOOK_S)


def _watches_nothing(node_path: Path, switch: watchdog.Switch) -> bool:
    """Whether the watchdog is there, and has no reason to be."""
    if (free := watchdog.try_lock(node_path / "watchdog.lock")) is not None:
        os.close(free)
        return False
    with suppress(OSError):  # it has just removed the folder
        return not switch.has_sandboxes()
    return True
