"""When a process has to end: a signal, or the end of the lifeline. What hangs in its end is ended.

For processes that have nothing to say to clients at their end (worker, node); the API has an order of its own.
"""

import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from outlive.processes.lifeline import wait_for_end

HANG_S = 9.0  # from the first word of the end to the last; then the process is ended as it is

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_ending(lifeline_fd: int | None, hang_s: float = HANG_S) -> AsyncIterator[anyio.Event]:
    """Set when it is time to end. From then on the process has `hang_s`; a second signal ends it at once."""
    ending = anyio.Event()
    async with anyio.create_task_group() as watchers:
        await watchers.start(_watch_signals, ending, hang_s)
        if lifeline_fd is not None:
            watchers.start_soon(_watch_lifeline, lifeline_fd, ending, hang_s)
        yield ending
        watchers.cancel_scope.cancel()


def _end(ending: anyio.Event, why: str, hang_s: float) -> None:
    _log.info("stopping", extra={"why": why})
    if ending.is_set():
        os._exit(1)
    # The kernel's alarm, not a task or a thread: it has to work when the event loop, or Python itself, does not.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, hang_s)
    ending.set()


async def _watch_signals(ending: anyio.Event, hang_s: float, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            _end(ending, number.name, hang_s)


async def _watch_lifeline(lifeline_fd: int, ending: anyio.Event, hang_s: float) -> None:
    await wait_for_end(lifeline_fd)
    if not ending.is_set():
        _end(ending, "the supervisor is gone", hang_s)
