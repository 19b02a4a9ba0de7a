"""Bases and runtimes as a node asks for them: made when they are missing, off the event loop, and remembered."""

import logging
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from outlive.base import NotFoundError
from outlive.machine.backends.bases.ensure import ensure_base, find_base
from outlive.machine.backends.bases.runtime import ensure_runtime, find_runtime
from outlive.machine.base import Base, Runtime

_log = logging.getLogger(__name__)


class CachedBases:
    def __init__(self, bases: Path, runtimes: Path) -> None:
        self._bases = bases
        self._runtimes = runtimes
        self._known: dict[str, Base] = {}
        self._runtime: Runtime | None = None
        self._making = anyio.Lock()

    async def base(self, reference: str, key: str | None) -> Base:
        if key is not None and (known := self._known.get(key)) is not None and known.is_immutable:
            return known
        async with self._making:
            base = await anyio.to_thread.run_sync(partial(self._find, reference, key))
        self._known[base.key] = base
        return base

    async def runtime(self, key: str | None = None) -> Runtime:
        if self._runtime is None:
            async with self._making:
                self._runtime = await anyio.to_thread.run_sync(partial(ensure_runtime, self._runtimes, say=_log.info))
        if key is None or key == self._runtime.key:
            return self._runtime
        return await anyio.to_thread.run_sync(find_runtime, key, self._runtimes)

    def _find(self, reference: str, key: str | None) -> Base:
        if key is not None:
            try:
                return find_base(key, self._bases)
            except NotFoundError:
                pass
        base = ensure_base(reference, self._bases, say=_log.info)
        if key is not None and base.key != key:
            raise NotFoundError(
                "base.missing",
                f"Base {key} is not on this host, and {reference!r} stands for {base.key} here: copy it from the host "
                "that has it, or make a new machine.",
            )
        return base
