"""The port to workers of users: calling a tool that one of them runs, and how such a call may end."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from outlive.base import EffectId
from outlive.loop.tools.own.offers import Offered
from outlive.loop.tools.own.wire import CallAnswer, CallTask


class Ended(NamedTuple):
    """`answered`: it ran to an end. `away`: no worker took it in time, so nothing was done. `stopped`: it was called
    off before any worker had begun it. `lost`: it had begun, and nobody knows what came of it."""

    how: Literal["answered", "away", "stopped", "lost"]
    answer: CallAnswer | None = None


Show = Callable[[str], None]


class OwnToolCaller(Protocol):
    async def call(self, task: CallTask, of: Offered, *, may_begin: bool, show: Show) -> Ended:
        """Run it, or wait for the run that was begun under its effect id. Without `may_begin` none is begun: what is
        not there is lost. Raises only `unavailable`."""
        ...

    async def stop(self, effect: EffectId) -> Ended | None:
        """Call it off, and what came of it, within a moment. None if none was begun."""
        ...


class LiveOutput(Protocol):
    """What tools say while they run, from one process to another. It may be lost."""

    async def put(self, effect: EffectId, text: str) -> None:
        """All that was said, each time."""
        ...

    async def get(self, effect: EffectId) -> str: ...

    async def forget(self, effect: EffectId) -> None: ...
