"""A turn as Temporal runs it: a thin shell that does what a plan says until there is nothing left to do, and ends.

Rule 1: it knows nothing that the log does not. Every activity returns the next plan, made from the log; a run that is
        started again, late, or after Temporal's database was lost, looks into the log and goes on.
Rule 2: deterministic: only `temporalio.workflow`, values and pure types; all else is in activities. What changes here
        changes by a patch (`versions.py`).
Rule 3: it ends. What is submitted while it ends is looked for once more, so that no message falls between two runs.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from outlive.base import ConversationId, TurnId
from outlive.loop.plan import CompactStep, Finish, ModelStep, Plan, ToolStep, Wait, newest
from outlive.loop.tasks import (
    CALL_MODEL,
    COMPACT,
    END_TURN,
    INTERRUPT,
    PLAN,
    REST,
    RUN_TOOL,
    SUBMIT,
    TURN,
    CompactTask,
    EndTask,
    Interrupt,
    LookTask,
    ModelTask,
    RestTask,
    ToolTask,
    TurnTask,
)

ROUNDS = 500  # of one run; then it goes on as a new one
_RECORD = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=5))
_STEP = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10), maximum_attempts=100
)
_REST = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10), maximum_attempts=10
)
_REST_WITHIN = timedelta(minutes=10)
_SHORTEST_WAIT = timedelta(milliseconds=200)  # whose clock is behind does not look again and again
_RECORD_WITHIN = timedelta(seconds=20)
_MODEL_WITHIN = timedelta(minutes=30)
_TOOL_WITHIN = timedelta(hours=24)  # a command has a timeout of its own
_HEARTBEAT = timedelta(seconds=5)


@workflow.defn(name=TURN)
class Turn:
    @workflow.init
    def __init__(self, task: TurnTask) -> None:
        self._conversation: ConversationId = task.conversation
        self._plan: Plan | None = task.plan
        self._interrupt: Interrupt | None = task.interrupt
        self._submitted = 0
        self._looked = -1  # what had been submitted when somebody last looked into the log

    @workflow.run
    async def run(self, task: TurnTask) -> None:
        if self._plan is None:
            self._plan = await self._look(task.recovered)
        rounds = 0
        while not (self._plan.nothing and await self._is_over()):
            self._plan = await self._go_on(self._plan)
            rounds += 1
            is_long = rounds >= ROUNDS or workflow.info().is_continue_as_new_suggested()
            if is_long and workflow.all_handlers_finished():
                workflow.continue_as_new(
                    TurnTask(conversation=self._conversation, plan=self._plan, interrupt=self._interrupt)
                )

    @workflow.update(name=SUBMIT)
    async def submit(self) -> None:
        """Something new is in the log. The next step sees it; a run that is about to end looks again."""
        self._submitted += 1

    @workflow.update(name=INTERRUPT)
    async def interrupt(self, interrupt: Interrupt) -> None:
        """Stop a turn. Returns when it has ended; one that is over already changes nothing."""
        if self._interrupt is None or self._interrupt.turn != interrupt.turn:
            self._interrupt = interrupt
        await workflow.wait_condition(lambda: self._plan is not None and self._plan.turn != interrupt.turn)

    async def _is_over(self) -> bool:
        """Nothing is left to do, and nothing was submitted since somebody last looked."""
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._submitted == self._looked

    async def _go_on(self, plan: Plan) -> Plan:
        if plan.turn is None or plan.begin is not None:
            return await self._look()
        if interrupt := self._interrupt_of(plan):
            return await self._end(plan.turn, Finish(outcome="interrupted"), interrupt=interrupt)
        if plan.finish is not None:
            return await self._end(plan.turn, plan.finish, expect=plan.seq)
        if plan.wait is not None:
            return await self._wait(plan, plan.turn, plan.wait)
        return await self._do(plan, plan.turn)

    def _interrupt_of(self, plan: Plan) -> Interrupt | None:
        return self._interrupt if self._interrupt is not None and self._interrupt.turn == plan.turn else None

    # ── steps ──

    async def _do(self, plan: Plan, turn: TurnId) -> Plan:
        """Run what the plan says, at the same time; what is interrupted is waited for, so that it ends cleanly."""
        alone = plan.model or plan.compact
        steps: Sequence[ModelStep | CompactStep | ToolStep] = [alone] if alone else plan.tools
        running = [asyncio.create_task(self._step(turn, step)) for step in steps]
        await workflow.wait_condition(
            lambda: all(task.done() for task in running) or self._interrupt_of(plan) is not None
        )
        if self._interrupt_of(plan) is not None:
            for task in running:
                task.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
        if self._interrupt_of(plan) is not None:
            return plan
        for each in ended:
            if isinstance(each, ActivityError):
                return await self._end(turn, Finish(outcome="failed", reason=_reason(each)))
            if isinstance(each, BaseException):
                raise each
        return newest(*(each for each in ended if isinstance(each, Plan)))

    # ── waiting ──

    async def _wait(self, plan: Plan, turn: TurnId, wait: Wait) -> Plan:
        """Nothing of the turn runs meanwhile. Whatever is submitted, and the end of the time, is looked at."""
        if not wait.is_parked and (parked := await self._rest(plan, turn)) is not None:
            return parked
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: self._is_stirred(plan), timeout=_left(wait))
        return plan if self._interrupt_of(plan) is not None else await self._look()

    async def _rest(self, plan: Plan, turn: TurnId) -> Plan | None:
        """Say in the log that the turn waits, and let the machine sleep. None if that cannot be done: then it waits all
        the same. Whoever is answered meanwhile goes on at once."""
        submitted = self._submitted
        resting: asyncio.Task[Plan] = asyncio.create_task(
            workflow.execute_activity(
                REST,
                RestTask(conversation=self._conversation, turn=turn),
                result_type=Plan,
                start_to_close_timeout=_REST_WITHIN,
                heartbeat_timeout=_HEARTBEAT,
                retry_policy=_REST,
            )
        )
        await workflow.wait_condition(
            lambda: resting.done() or self._submitted != submitted or self._interrupt_of(plan) is not None
        )
        if not resting.done():
            resting.cancel()
        ended = (await asyncio.gather(resting, return_exceptions=True))[0]
        if not isinstance(ended, BaseException):
            return ended
        if self._interrupt_of(plan) is not None:
            return plan
        if self._submitted != submitted:
            return await self._look()
        if not isinstance(ended, ActivityError):
            raise ended
        return None

    def _is_stirred(self, plan: Plan) -> bool:
        return self._submitted != self._looked or self._interrupt_of(plan) is not None

    async def _step(self, turn: TurnId, step: ModelStep | CompactStep | ToolStep) -> Plan:
        task: Any
        if isinstance(step, ModelStep):
            name, within = CALL_MODEL, _MODEL_WITHIN
            task = ModelTask(conversation=self._conversation, turn=turn, model=step)
        elif isinstance(step, CompactStep):
            name, within = COMPACT, _MODEL_WITHIN
            task = CompactTask(conversation=self._conversation, turn=turn, compact=step)
        else:
            name, within = RUN_TOOL, _TOOL_WITHIN
            task = ToolTask(conversation=self._conversation, turn=turn, tool=step)
        plan: Plan = await workflow.execute_activity(
            name,
            task,
            result_type=Plan,
            start_to_close_timeout=within,
            heartbeat_timeout=_HEARTBEAT,
            retry_policy=_STEP,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        return plan

    # ── the log ──

    async def _look(self, recovered: str | None = None) -> Plan:
        task = LookTask(conversation=self._conversation, recovered=recovered, run=workflow.info().run_id)
        return await self._record(PLAN, task)

    async def _end(
        self, turn: TurnId, finish: Finish, expect: int | None = None, interrupt: Interrupt | None = None
    ) -> Plan:
        return await self._record(
            END_TURN,
            EndTask(conversation=self._conversation, turn=turn, finish=finish, expect=expect, interrupt=interrupt),
        )

    async def _record(self, name: str, task: LookTask | EndTask) -> Plan:
        """A short activity that looks into the log: what was submitted before it, it sees."""
        submitted = self._submitted
        plan: Plan = await workflow.execute_local_activity(
            name, task, result_type=Plan, start_to_close_timeout=_RECORD_WITHIN, retry_policy=_RECORD
        )
        self._looked = submitted
        return plan


def _left(wait: Wait) -> timedelta | None:
    if wait.until is None:
        return None
    return max(_SHORTEST_WAIT, datetime.fromisoformat(wait.until) - workflow.now())


def _reason(error: ActivityError) -> str:
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return f"A step could not be done ({cause.type}); the worker's log says more."
    return "A step did not end, however often it was tried."
