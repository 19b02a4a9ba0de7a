"""Running the function of a tool, in the process of its author's.

Rule 1: it is others' code. Whatever it raises is an end that is told; whatever it blocks, the worker goes on beating:
        async functions have an event loop of their own, in a thread, and the others threads.
Rule 2: a coroutine that is to stop is cancelled. A thread cannot be stopped: it is told (`context.is_cancelled`), and
        left after a moment.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import anyio.from_thread

from outlive.toolkit import DeclaredTool, ToolContext

STOP_WITHIN_S = 2.5
_LOOK_S = 0.02


class Returned(NamedTuple):
    """What a function returned, or raised."""

    value: Any = None
    error: BaseException | None = None


class Run:
    """One call at work. `is_over` when nothing of it runs any more."""

    def __init__(self, tool: DeclaredTool, arguments: dict[str, Any], context: ToolContext) -> None:
        self.tool = tool
        self.context = context
        self.is_over = False
        self._arguments = {**arguments, tool.context: context} if tool.context is not None else arguments

    async def await_it(self) -> Returned:
        try:
            return Returned(await self.tool.function(**self._arguments))
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001
            return self._raised(error)
        finally:
            self.is_over = True

    def call_it(self) -> Returned:
        try:
            return Returned(self.tool.function(**self._arguments))
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001
            return self._raised(error)
        finally:
            self.is_over = True

    def _raised(self, error: BaseException) -> Returned:
        """Being cancelled is an error like any other, if nobody here did it."""
        if isinstance(error, asyncio.CancelledError) and self.context.is_cancelled:
            raise error
        return Returned(error=error)


class Runner:
    def __init__(self, portal: anyio.from_thread.BlockingPortal, threads: ThreadPoolExecutor) -> None:
        self._portal = portal
        self._threads = threads

    async def run(self, run: Run) -> Returned:
        """To its end. Cancelled, it is stopped; what has not stopped within a moment is left (`is_over`)."""
        is_async = run.tool.is_async
        future = self._portal.start_task_soon(run.await_it) if is_async else self._threads.submit(run.call_it)
        try:
            return await asyncio.wrap_future(future)
        except anyio.get_cancelled_exc_class():
            run.context.cancel()
            with anyio.move_on_after(STOP_WITHIN_S, shield=True):
                while not run.is_over:  # noqa: ASYNC110  (it ends in another thread)
                    await anyio.sleep(_LOOK_S)
            raise


@asynccontextmanager
async def open_runner(at_once: int) -> AsyncIterator[Runner]:
    """What still runs at the end is left to the end of the process."""
    threads = ThreadPoolExecutor(at_once, thread_name_prefix="tool")
    try:
        with anyio.from_thread.start_blocking_portal() as portal:
            yield Runner(portal, threads)
            portal.start_task_soon(portal.stop, True)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
