"""Messages that are to be taken at once, seen from a step that is under way: it looks into the log now and then.

The step decides for itself, by what the log says of it: what has taken the message already is not stopped for it. A
worker that is killed leaves the message in the log, and whoever tries the step again finds it there.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from outlive.base import OutliveError
from outlive.loop.activities.beating import BEAT_S
from outlive.loop.activities.scribe import Scribe
from outlive.loop.state import TurnState
from outlive.loop.views import View

_log = logging.getLogger(__name__)

T = TypeVar("T")


async def unless_hurried(
    scribe: Scribe, view: View, is_outrun: Callable[[TurnState], bool], work: Callable[[], Awaitable[T]]
) -> T | None:
    """What came of `work`. None: a message came that it was stopped for. A short step is over before anybody looks."""
    done: list[T] = []
    failed: list[OutliveError] = []
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while True:
                await anyio.sleep(BEAT_S)
                if await _has_news(scribe, view) and is_outrun(view.state):
                    break
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            done.append(await work())
        except OutliveError as error:  # which would leave the group as one of many
            failed.append(error)
        group.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return done[0] if done else None


async def _has_news(scribe: Scribe, view: View) -> bool:
    """Whether the view has what the log has. If that cannot be seen now, it is looked again."""
    try:
        if await scribe.conversations.head(view.conversation) > view.seq:
            await scribe.views.refresh(view)
    except OutliveError as error:
        _log.debug("not looked for messages: %s", error.message)
        return False
    return True
