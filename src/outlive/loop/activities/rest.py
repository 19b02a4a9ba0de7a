"""Before a turn waits: that it does is said in the log, whoever has to know is told, and its machine sleeps.

Rule 1: the log says that a turn is parked only at a moment at which it has nothing else to do: whatever comes first
        refuses it, and is looked at instead.
Rule 2: a machine that cannot sleep now costs money and harms nobody: its node lets it sleep later.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity

from outlive.base import ApprovalId, ConflictError, CrashPoint, OutliveError, TurnId, reach
from outlive.conversation.events import TurnParked
from outlive.loop.activities.beating import Progress, run_beating
from outlive.loop.activities.scribe import MOVED, Scribe
from outlive.loop.plan import Plan
from outlive.loop.tasks import REST, RestTask
from outlive.loop.tools import ToolParts
from outlive.loop.views import View

SLEEP_FROM = timedelta(seconds=60)  # for what is shorter a machine stays up: to sleep and wake takes seconds too
_TRIES = 50  # while others write to the same conversation

_log = logging.getLogger(__name__)

Announce = Callable[[View, Sequence[ApprovalId]], Awaitable[None]]
"""Tell the outside of approvals that are asked for. Again: nothing happens."""


class RestActivities:
    def __init__(self, scribe: Scribe, parts: ToolParts, announce: Announce | None = None) -> None:
        self._scribe = scribe
        self._machines = parts.machines
        self._announce = announce

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.rest,)

    @activity.defn(name=REST)
    async def rest(self, task: RestTask) -> Plan:
        async def take() -> Plan:
            view = await self._scribe.views.catch_up(task.conversation)
            await self._tell(view)  # first: a turn that is parked is not told of again
            plan = await self._park(view, task.turn)
            if plan.wait is None or plan.turn != task.turn:
                return plan
            reach(CrashPoint.TURN_AFTER_PARK)
            if _is_long(plan.wait.until, self._scribe.conversations.clock.now()):
                await self._sleep(view, task.turn)
            await self._scribe.views.refresh(view)
            reach(CrashPoint.TURN_AFTER_REST)
            return self._scribe.views.decide(view)

        async def leave() -> None:
            """Whoever goes on wakes the machine: nothing has to be undone."""

        return await run_beating(take, Progress(), leave)

    async def _park(self, view: View, turn: TurnId) -> Plan:
        """The plan, which is in the log if it is to wait."""
        for _ in range(_TRIES):
            plan = self._scribe.views.decide(view)
            if plan.wait is None or plan.turn != turn or plan.wait.is_parked:
                return plan
            parked = TurnParked(until=plan.wait.until)
            try:
                await self._scribe.say(view, turn, f"parked/{turn}/{view.seq}", "loop", parked, expect=view.seq)
            except ConflictError as error:
                if error.code not in MOVED:
                    raise
                await self._scribe.views.refresh(view)
        raise ConflictError("append.moved", "The conversation is written to all the time; it is tried again.")

    async def _tell(self, view: View) -> None:
        turn = view.state.turn
        if self._announce is None or turn is None:
            return
        calls = turn.answer.calls if turn.answer is not None else ()
        holds = [call.hold for call in calls if call.outcome is None and call.hold is not None]
        holds += [turn.gate] if turn.gate is not None else []
        pending = [ApprovalId(hold.approval) for hold in holds if hold.approval and hold.decision is None]
        await self._announce(view, pending)

    async def _sleep(self, view: View, turn: TurnId) -> None:
        if self._machines is None or view.state.machine is None:
            return
        if any(child.machine == "same" for child in view.state.children):
            return  # a subagent works there
        try:
            await self._machines.rest(view.conversation, turn)
        except OutliveError as error:
            _log.warning("machine stays up: %s", error.message, extra={"conversation": view.conversation})


def _is_long(until: str | None, now: datetime) -> bool:
    return until is None or datetime.fromisoformat(until) - now >= SLEEP_FROM
