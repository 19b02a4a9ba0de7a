"""A node asks Temporal for a machine only while it has room for one: so that each is given to a node that has.

A slot is what a worker holds from before it asks until what it was given is done. Each slot out counts as a machine:
the one that it may bring. So a node is never given more than it has room for, and nothing under way is stopped when it
becomes full by that. A refusal (`node.full`) stays possible, say after an adoption, and is tried elsewhere.
"""

from collections.abc import Callable

import anyio
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerTuner,
)

_LOOK_EVERY_S = 0.1


class PlaceSlots(CustomSlotSupplier):
    """`has_room(n)`: whether there is room for one more machine than those that are up and `n` that may come."""

    def __init__(self, has_room: Callable[[int], bool]) -> None:
        self._has_room = has_room
        self._out: set[SlotPermit] = set()  # given back in threads of Temporal's own: each call is one step

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        # Room comes from many sides, and slots come back in other threads: who waits looks. It costs little.
        while not self._has_room(len(self._out)):  # noqa: ASYNC110
            await anyio.sleep(_LOOK_EVERY_S)
        permit = SlotPermit()
        self._out.add(permit)
        return permit

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        return None  # for what comes without being asked for, which here nothing does

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """It counts already."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        self._out.discard(ctx.permit)


def places_tuner(has_room: Callable[[int], bool]) -> WorkerTuner:
    """For a worker that does nothing but what is placed."""
    unused = FixedSizeSlotSupplier(1)
    return WorkerTuner.create_composite(
        workflow_supplier=unused,
        activity_supplier=PlaceSlots(has_room),
        local_activity_supplier=unused,
        nexus_supplier=unused,
    )
