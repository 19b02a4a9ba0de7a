"""How a step runs: with heartbeats, and so that it can be stopped.

The step has a task of its own. Temporal cancels the task of an activity, and no shield keeps that out: what has to be
written at the end would be cut off. What passes through the group waits for what is shielded.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from temporalio import activity

from outlive.base import OutliveError
from outlive.loop.failures import as_failure
from outlive.loop.plan import Plan

BEAT_S = 0.5
STOP_WITHIN_S = 4.0  # less than a missed heartbeat: a stop that hangs is given up by who does it, and not by who waits


class Progress:
    """What a heartbeat says: how far it is. A number, never a text."""

    def __init__(self) -> None:
        self.characters = 0


async def run_beating(
    step: Callable[[], Awaitable[Plan]],
    progress: Progress,
    on_interrupt: Callable[[], Awaitable[None]],
) -> Plan:
    """Take a step, and say meanwhile that we live; its errors leave as Temporal's.

    When somebody stops the turn, the step is cancelled and then `on_interrupt` is run, in a bounded time. A worker that
    is told to end cancels too, but leaves what it has begun for the next one to find.
    """
    plans: list[Plan] = []

    async def beat() -> None:
        while True:
            await anyio.sleep(BEAT_S)  # first: a short step is over by then, and costs Temporal nothing
            activity.heartbeat(progress.characters)

    with as_failure():
        async with anyio.create_task_group() as group:

            async def take() -> None:
                try:
                    plans.append(await step())
                except anyio.get_cancelled_exc_class():
                    if _is_interrupted():
                        with anyio.move_on_after(STOP_WITHIN_S, shield=True), suppress(OutliveError):
                            await on_interrupt()
                    raise
                group.cancel_scope.cancel()

            group.start_soon(beat)
            group.start_soon(take)
    return plans[0]


def _is_interrupted() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested
