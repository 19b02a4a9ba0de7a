"""A gate in front of a machine: many pass, or one has it shut and alone.

Whoever asks the guest for something passes; a checkpoint, a freeze or an end shuts it, waits until nobody is inside,
does its work and opens it again. What runs in the machine goes on meanwhile.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from outlive.base import DeadlineError


class Gate:
    def __init__(self) -> None:
        self._changed = anyio.Condition()
        self._inside = 0
        self._is_shut = False

    @property
    def is_shut(self) -> bool:
        return self._is_shut

    @asynccontextmanager
    async def inside(self, within_s: float) -> AsyncIterator[None]:
        """Wait until it is open, and keep it from being shut."""
        async with self._changed:
            with anyio.move_on_after(within_s):
                while self._is_shut:
                    await self._changed.wait()
            if self._is_shut:
                raise DeadlineError(
                    "machine.busy", f"The machine is being saved or moved for longer than {within_s:g} s."
                )
            self._inside += 1
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()

    @asynccontextmanager
    async def shut(self, within_s: float) -> AsyncIterator[None]:
        """Have it alone. Those who come meanwhile wait."""
        async with self._changed:
            await self._take(within_s)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._changed:
                    self._open()

    async def _take(self, within_s: float) -> None:
        has_shut = is_alone = False
        try:
            with anyio.move_on_after(within_s):
                while self._is_shut:
                    await self._changed.wait()
                self._is_shut = has_shut = True
                while self._inside:
                    await self._changed.wait()
                is_alone = True
        finally:
            if has_shut and not is_alone:
                self._open()
        if not is_alone:
            raise DeadlineError("machine.busy", f"The machine was in use for longer than {within_s:g} s.")

    def _open(self) -> None:
        self._is_shut = False
        self._changed.notify_all()
