"""Finds turns that are open in the log and run nowhere, and begins them again: an API that died between a message and
the word to the loop, Temporal away at that moment, or its database lost. And those that wait and were not told of what
came: the log says that they go on, and nothing of them does; subagents, and those who wait for them, among them. Runs
in every worker: looking, and telling, twice is harmless.

A turn that waits, as the log has it, needs nobody: whether it is still there is asked seldom, so that a thousand of
them cost nothing.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio

from outlive.base import Clock, ConversationId, OutliveError, to_text
from outlive.conversation.log import Catalog, OpenTurn
from outlive.loop.client import LoopClient

EVERY_S = 15.0
SETTLE_S = 3.0  # that whoever wrote last has to tell the loop itself
WAITING_EVERY = 20  # sweeps: how often those that wait are looked at
_PAGE = 200
_AT_ONCE = 8
_REASON = "The turn was open in the log and ran nowhere; it goes on from what the log says."

_log = logging.getLogger(__name__)


class TurnSweeper:
    def __init__(
        self,
        catalog: Catalog,
        loop: LoopClient,
        clock: Clock,
        *,
        every_s: float = EVERY_S,
        settle_s: float = SETTLE_S,
        look_after: Callable[[ConversationId], Awaitable[None]] | None = None,
    ) -> None:
        self._catalog = catalog
        self._loop = loop
        self._clock = clock
        self._every_s = every_s
        self._settle = timedelta(seconds=settle_s)
        self._look_after = look_after
        self._sweeps = 0

    async def run(self) -> None:
        """Look at once and then every so often, for ever."""
        while True:
            try:
                await self.sweep()
            except OutliveError as error:
                _log.warning("open turns were not looked for: %s", error.message)
            await anyio.sleep(self._every_s)

    async def sweep(self) -> int:
        """How many turns were begun again."""
        restarted = 0
        is_thorough = self._sweeps % WAITING_EVERY == 0
        self._sweeps += 1
        page = await self._catalog.open_turns(limit=_PAGE)
        while page:
            restarted += await self._look_at([each for each in page if is_thorough or each.state != "waiting"])
            page = await self._catalog.open_turns(limit=_PAGE, after=page[-1].conversation)
        return restarted

    async def _look_at(self, page: list[OpenTurn]) -> int:
        limiter = anyio.CapacityLimiter(_AT_ONCE)
        restarted: list[OpenTurn] = []

        async def look(turn: OpenTurn) -> None:
            async with limiter:
                try:
                    if await self._loop.is_running(turn.conversation):
                        if turn.state == "running" and turn.is_idle and self._is_settled(turn):
                            await self._loop.submit(turn.conversation)
                        if self._look_after is not None and self._is_settled(turn):
                            await self._look_after(turn.conversation)
                    elif self._is_settled(turn):
                        await self._loop.restart(turn.conversation, _REASON)
                        restarted.append(turn)
                except OutliveError as error:
                    _log.warning("turn was not begun again: %s", error.message, extra={"turn": turn.turn})

        async with anyio.create_task_group() as group:
            for turn in page:
                group.start_soon(look, turn)
        if restarted:
            _log.info("turns begun again", extra={"count": len(restarted)})
        return len(restarted)

    def _is_settled(self, turn: OpenTurn) -> bool:
        return turn.updated_at <= to_text(self._clock.now() - self._settle)
