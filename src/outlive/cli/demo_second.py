"""The second client of the demo's task: it follows too, is cut off in the middle of the work, and comes back."""

from collections.abc import Callable
from typing import NamedTuple

import anyio.abc

from outlive.base import DeadlineError, OutliveError
from outlive.cli.demo_client import Client, client_environment
from outlive.cli.demo_stage import Silence
from outlive.client import AsyncConversation
from outlive.wiring.settings import Settings

IS_CUT_AFTER = 1  # tool calls that the first client has seen the end of
RETURNS_AFTER = 3
_LOOKS = 10  # at a log that goes on while it is compared


class Comparison(NamedTuple):
    is_identical: bool
    items: int
    cut_off_at: str | None
    missed: int  # events that the log took meanwhile
    trouble: str | None = None  # why they could not be compared


class SecondClient:
    def __init__(self, conversation: AsyncConversation, settings: Settings, say: Callable[[str], None]) -> None:
        self._conversation = conversation
        self._client = Client("two", Silence(), client_environment(settings))
        self._say = say
        self._is_away = False
        self._cut_off_at: str | None = None
        self._head_at_cut = 0
        self._is_back = False
        self._missed = 0

    async def begin(self, group: anyio.abc.TaskGroup) -> None:
        """It follows when this returns."""
        await self._follow(group)
        await self._client.until(lambda: self._client.view.head > 0)

    async def go_on(self, group: anyio.abc.TaskGroup, *, calls: int, head: int) -> None:
        """The first client has seen the end of so many tool calls, and the log up to `head`."""
        if not self._is_away and not self._is_back and calls >= IS_CUT_AFTER:
            await self._cut_off()
        elif self._is_away and calls >= RETURNS_AFTER:
            await self._come_back(group, head)

    async def end(self, group: anyio.abc.TaskGroup, *, head: int) -> Comparison:
        """The turn is over: whatever was not shown yet is shown now, and the screens are compared."""
        if not self._is_back:
            if not self._is_away:
                await self._cut_off()
            await self._come_back(group, head)
        try:
            return await self._compare()
        except OutliveError as error:  # what the turn came to is told all the same
            return Comparison(False, 0, self._cut_off_at, self._missed, error.message)

    async def _compare(self) -> Comparison:
        for _ in range(_LOOKS):
            transcript = await self._conversation.transcript()
            await self._reach(transcript.head)
            if self._client.view.head == transcript.head:
                is_identical = self._client.view.items() == [*transcript.items]
                return Comparison(is_identical, len(transcript.items), self._cut_off_at, self._missed)
        raise DeadlineError("demo.busy", "The conversation goes on and on: its clients cannot be compared.")

    async def _reach(self, head: int) -> None:
        await self._client.until(lambda: self._client.view.head >= head)

    async def _follow(self, group: anyio.abc.TaskGroup) -> None:
        await group.start(self._client.run, self._conversation.id)

    async def _cut_off(self) -> None:
        await self._client.cut_off()
        self._is_away = True
        self._cut_off_at, self._head_at_cut = self._client.view.position, self._client.view.head
        self._say(f"A second client that follows was CUT OFF (SIGKILL). Its position: {self._cut_off_at}")

    async def _come_back(self, group: anyio.abc.TaskGroup, head: int) -> None:
        self._missed, self._is_back, self._is_away = max(0, head - self._head_at_cut), True, False
        self._say(
            f"The second client comes back as a new process and RESUMES after {self._cut_off_at}; "
            f"it missed {self._missed} events."
        )
        await self._follow(group)
