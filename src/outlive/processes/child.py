"""One process of the stack, as the supervisor sees it: how it is started, when it is ready, how it is ended.

Children are in sessions of their own, so a Ctrl-C reaches only the supervisor, which ends them in order.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

import anyio
import anyio.abc
import anyio.to_thread

from outlive.processes.logs import open_log, rotate
from outlive.processes.ready import ReadyPipe
from outlive.processes.restart import Death

GRACE_S = 10.0  # that a process has to end in after SIGTERM: longer than the bounds they set themselves
_PROBE_EVERY_S = 0.05
_NOTE_EVERY_S = 1.0


def _nothing() -> None:
    pass


class Child(NamedTuple):
    name: str
    arguments: tuple[str, ...]  # of Python: what to run
    descriptors: tuple[int, ...] = ()
    is_ready: Callable[[], bool] | None = None  # asked from a thread; None: it tells, on a pipe that it is given
    when_ready: Callable[[], None] = _nothing
    end_with: signal.Signals = signal.SIGTERM
    ends_after: tuple[str, ...] = ()  # those that need it until their own end


class Life:
    """One run of a child, from its start to its death."""

    def __init__(self, child: Child, process: anyio.abc.Process, ready: ReadyPipe | None) -> None:
        self.child = child
        self.process = process
        self._ready = ready
        self._started = time.monotonic()
        self._is_ready = False
        self.gone = anyio.Event()

    async def wait_ready(self) -> bool:
        """Return when it is ready, or False if it will never be."""
        if self._ready is not None:
            self._is_ready = await self._ready.wait()
        else:
            assert self.child.is_ready is not None
            while True:
                if await anyio.to_thread.run_sync(self.child.is_ready, abandon_on_cancel=True):
                    break
                await anyio.sleep(_PROBE_EVERY_S)
            self._is_ready = True
        if self._is_ready:
            await self._note_ready()
        return self._is_ready

    async def _note_ready(self) -> None:
        while True:
            try:
                return self.child.when_ready()
            except OSError:  # a full disk, say; nobody is told that it is ready before it is noted
                await anyio.sleep(_NOTE_EVERY_S)

    def death(self, well_after_s: float) -> Death:
        now = time.monotonic()
        return Death(now, self._is_ready and now - self._started >= well_after_s)

    async def end(self) -> None:
        """Its signal, a bound, SIGKILL. The process is gone when this returns."""
        if self.process.returncode is None:
            self.process.send_signal(self.child.end_with)
            with anyio.move_on_after(GRACE_S):
                await self.process.wait()
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def close(self) -> None:
        """It is gone, and whoever waits for that is told."""
        self.gone.set()
        if self._ready is not None:
            self._ready.close()


async def start(child: Child, environment: Mapping[str, str], log_path: Path, log_bytes: int) -> Life:
    """Start it. Raises `OSError` if there is no room for a process on this host."""
    rotate(log_path, log_bytes)
    ready = ReadyPipe() if child.is_ready is None else None
    telling = ("--ready-fd", str(ready.write_fd)) if ready else ()
    passed = (ready.write_fd,) if ready else ()
    try:
        with _open_log_or_none(log_path) as log:
            process = await anyio.open_process(
                # -P: a file in the present folder never stands in for a module of ours.
                [sys.executable, "-P", *child.arguments, *telling],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=(*child.descriptors, *passed),
                start_new_session=True,
            )
    except BaseException:
        if ready:
            ready.close()
        raise
    if ready:
        ready.passed_on()
    return Life(child, process, ready)


def _open_log_or_none(path: Path) -> BinaryIO:
    try:
        return open_log(path)
    except OSError:
        return open(os.devnull, "ab")
