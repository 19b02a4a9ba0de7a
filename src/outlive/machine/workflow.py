"""The Temporal shell around `lifecycle`: does one step after the other until nothing is left, and ends.

Rule 1: it holds no state. What is wanted and what is known is in SQL; each round asks for the next step anew, so a run
        that is started twice, or late, or after the database of Temporal was lost, does the right thing.
Rule 2: deterministic: only `temporalio.workflow` and values; all else is in activities.
Rule 3: it ends. A step that fails for good is written down, and a person or the reconciler starts the next run.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

from outlive.machine.steps import FAIL, NO_ROOM, PLAN, SETTLE, Failure, Plan, Task

ROUNDS = 24
_RECORD = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=5))
_STEP = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=2), maximum_attempts=4
)
# A node asks only while it has room. A full fleet is waited for a little, then the caller is told.
_PLACED = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=2), maximum_attempts=10
)
_STEP_WITHIN = timedelta(minutes=10)
_NODE_WITHIN = timedelta(seconds=10)  # that a step waits for its node; then the plan is made anew
_ROOM_WITHIN = timedelta(seconds=30)
_HEARTBEAT = timedelta(seconds=5)


@workflow.defn(name=SETTLE)
class SettleMachine:
    @workflow.run
    async def run(self, task: Task) -> None:
        for _ in range(ROUNDS):
            plan = await self._plan(task)
            if plan.step is None or plan.activity is None:
                return
            try:
                await workflow.execute_activity(
                    plan.activity,
                    task,
                    task_queue=plan.queue,
                    start_to_close_timeout=_STEP_WITHIN,
                    schedule_to_start_timeout=_ROOM_WITHIN if plan.is_placed else _NODE_WITHIN,
                    heartbeat_timeout=_HEARTBEAT,
                    retry_policy=_PLACED if plan.is_placed else _STEP,
                )
            except ActivityError as error:
                if _is_node_away(error) and not plan.is_placed:
                    continue  # its node may come back, or be found gone
                await self._fail(Failure(machine=task.machine, step=plan.step, reason=_reason(error, plan)))
                return

    async def _plan(self, task: Task) -> Plan:
        plan: Plan = await workflow.execute_local_activity(
            PLAN, task, result_type=Plan, start_to_close_timeout=timedelta(seconds=10), retry_policy=_RECORD
        )
        return plan

    async def _fail(self, failure: Failure) -> None:
        await workflow.execute_local_activity(
            FAIL, failure, start_to_close_timeout=timedelta(seconds=10), retry_policy=_RECORD
        )


def _is_node_away(error: ActivityError) -> bool:
    return isinstance(error.cause, TimeoutError) and error.cause.type in (
        TimeoutType.SCHEDULE_TO_START,
        TimeoutType.HEARTBEAT,
    )


def _reason(error: ActivityError, plan: Plan) -> str:
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type != NO_ROOM:
        return cause.message
    if plan.is_placed:
        return "No node has room for it; end or hibernate other machines, or add a node."
    return f"The step {plan.step!r} did not end in time."
