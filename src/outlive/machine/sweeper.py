"""Gives back the room of checkpoints that nobody needs: their records first, then what they left in the object store.

Runs in every worker; may be done twice and at the same time (`checkpoint/sweeping.py` says why).
"""

import logging

import anyio

from outlive.base import CheckpointId, Clock, OutliveError
from outlive.machine.checkpoint import CheckpointStore, Living, Swept
from outlive.machine.records import CheckpointRecords

_log = logging.getLogger(__name__)

LOOK_EVERY_S = 30.0
SWEEP_EVERY_S = 600.0


async def sweep_once(checkpoints: CheckpointRecords, store: CheckpointStore) -> Swept:
    """Let go of the checkpoints of deleted machines, except what others were born from, and of all that no checkpoint
    needs in the store."""
    for checkpoint in await checkpoints.abandoned():
        await checkpoints.delete(checkpoint)

    async def live() -> Living:
        return Living(*await checkpoints.living())

    return await store.sweep(live)


class Sweeper:
    def __init__(self, checkpoints: CheckpointRecords, store: CheckpointStore, clock: Clock) -> None:
        self._checkpoints = checkpoints
        self._store = store
        self._clock = clock
        self._known: frozenset[CheckpointId] = frozenset()
        self._due_at = clock.monotonic()

    async def run(self) -> None:
        """For ever. What fails is said and tried again with the next look."""
        while True:
            await anyio.sleep(LOOK_EVERY_S)
            try:
                await self.look_once()
            except OutliveError as error:
                _log.warning("sweeping checkpoints: %s", error.message)

    async def look_once(self) -> Swept | None:
        """Sweep if some checkpoint has gone since the last look, or it was long ago."""
        kept, making = await self._checkpoints.living()
        has_gone = not self._known <= kept | making or bool(await self._checkpoints.abandoned())
        if not has_gone and self._clock.monotonic() < self._due_at:
            self._known = kept | making
            return None
        swept = await sweep_once(self._checkpoints, self._store)
        # Only now: a sweep that failed is due at the next look.
        self._known = frozenset().union(*await self._checkpoints.living())
        self._due_at = self._clock.monotonic() + SWEEP_EVERY_S
        if swept.objects:
            _log.info("swept", extra={"objects": swept.objects, "bytes": swept.bytes})
        return swept
