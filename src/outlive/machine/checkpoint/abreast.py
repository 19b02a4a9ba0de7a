"""Several things at a time, a bounded number, and the first failure as itself.

Invariant: when `abreast` returns or raises, nothing that it started is still going on.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

from outlive.base import OutliveError

AT_ONCE = 4  # objects under way: with packs of 8 MiB, opened and stored, about 64 MiB

T = TypeVar("T")


async def abreast(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:  # shared: each worker takes the next
            await work(item)

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(worker)
    except BaseExceptionGroup as group:
        raise first_of_ours(group) from group


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that a caller should hear: one of our kinds if there is one, else the group."""
    ours, _ = group.split(OutliveError)
    found: BaseException = ours if ours is not None else group
    while ours is not None and isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
