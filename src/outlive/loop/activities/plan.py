"""Looking into the log, beginning a turn and ending it. Short, run in the worker that has the workflow (local)."""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity

from outlive.base import CrashPoint, TurnId, reach
from outlive.conversation.events import EventData, TurnFinished, TurnInterrupted, TurnRecovered
from outlive.loop.activities.begin import begin_turn
from outlive.loop.activities.scribe import Scribe, actor_of
from outlive.loop.binding import Agents
from outlive.loop.failures import as_failure
from outlive.loop.plan import Plan
from outlive.loop.tasks import END_TURN, PLAN, EndTask, LookTask
from outlive.loop.views import View


class PlanActivities:
    def __init__(self, scribe: Scribe, agents: Agents) -> None:
        self._scribe = scribe
        self._agents = agents

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.plan, self.end_turn)

    @activity.defn(name=PLAN)
    async def plan(self, task: LookTask) -> Plan:
        """What the log says is next. A turn that has not begun begins here."""
        with as_failure():
            reach(CrashPoint.TURN_AFTER_SUBMIT)
            view = await self._scribe.views.catch_up(task.conversation)
            await self._scribe.mend(view)
            plan = self._scribe.views.decide(view)
            if task.recovered and plan.turn is not None:
                await self._say_recovered(view, plan.turn, task)
                plan = self._scribe.views.decide(view)
            if plan.begin is not None and plan.turn is not None:
                plan = await begin_turn(self._scribe, self._agents, view, plan.turn, plan.begin)
            return plan

    @activity.defn(name=END_TURN)
    async def end_turn(self, task: EndTask) -> Plan:
        """End the turn, unless something came into the log that the plan to end it has not seen."""
        with as_failure():
            view = await self._scribe.views.catch_up(task.conversation)
            turn = view.state.turn
            if turn is not None and turn.id == task.turn:
                await self._end(view, task)
            await self._scribe.mend(view)
            return self._scribe.views.decide(view)

    async def _say_recovered(self, view: View, turn: TurnId, task: LookTask) -> None:
        news = TurnRecovered(what="restarted", reason=task.recovered or "")
        await self._scribe.say(view, turn, f"restarted/{task.run}", "loop", news)

    async def _end(self, view: View, task: EndTask) -> None:
        bound = view.state.turn.bound if view.state.turn else None
        actor = task.interrupt.by if task.interrupt else actor_of(bound)
        reason = await self._reason(task)
        news: list[EventData] = [TurnFinished(outcome=task.finish.outcome, reason=reason)]
        if task.interrupt is not None:
            news.insert(0, TurnInterrupted(reason=reason, seen=task.interrupt.seen))
        await self._scribe.end(view, task.turn, actor, *news, expect=task.expect)

    async def _reason(self, task: EndTask) -> str | None:
        if task.finish.reason is not None or task.finish.words is not None:
            return task.finish.reason or await self._scribe.read_words(task.finish.words)
        if task.interrupt is None:
            return None
        return task.interrupt.reason or await self._scribe.read_words(task.interrupt.words)
