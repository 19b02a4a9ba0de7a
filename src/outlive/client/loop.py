"""An event loop in a thread, for callers without one.

Rule: a call that is interrupted (Ctrl-C) is cancelled on the loop as well: nothing goes on behind the caller's back.
"""

import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from outlive.base import ConflictError

T = TypeVar("T")


class Loop:
    """An event loop in a thread. Starts when first used; ends with `close`, or when nobody has it any more.

    Conversations hold it, not the client: they work on when the client they came from was forgotten.
    """

    def __init__(self, aclose: Callable[[], Awaitable[None]]) -> None:
        self._aclose = aclose
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._starting = threading.Lock()
        self.close = weakref.finalize(self, self._stack.close)  # also at the end of the program

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        async def call() -> T:
            return await function(*args, **kwargs)

        future = self._running().start_task_soon(call)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _running(self) -> BlockingPortal:
        if not self.close.alive:
            raise ConflictError("client.closed", "This client is closed: make a new one.")
        with self._starting:
            if self._portal is None:
                self._portal = self._stack.enter_context(start_blocking_portal(name="outlive-client"))
                self._stack.callback(self._portal.call, self._aclose)
            return self._portal
