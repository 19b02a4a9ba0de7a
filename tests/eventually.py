"""Wait for a condition, not for a time."""

import time
from collections.abc import Awaitable, Callable

import anyio


async def eventually(condition: Callable[[], bool | Awaitable[bool]], within_s: float = 10.0) -> None:
    """Return as soon as `condition` holds; fail if it does not within `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        result = condition()
        if not isinstance(result, bool):
            result = await result
        if result:
            return
        assert time.monotonic() < deadline, f"did not come true within {within_s} s: {condition}"
        await anyio.sleep(0.01)


def eventually_sync(condition: Callable[[], bool], within_s: float = 10.0, every_s: float = 0.01) -> None:
    """The same for code without an event loop. `every_s`: between two looks, where a look costs something."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {within_s} s: {condition}"
        time.sleep(every_s)
