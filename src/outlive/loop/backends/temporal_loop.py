"""Turns as workflows of Temporal: one per conversation, its id is the conversation's."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import anyio
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from outlive.base import ConversationId, DeadlineError, TurnId, UnavailableError
from outlive.conversation.blobs import Blobs
from outlive.loop.fold import step_id
from outlive.loop.plan import ModelStep, Plan
from outlive.loop.queues import LOOP
from outlive.loop.tasks import INTERRUPT, SUBMIT, TURN, Interrupt, TurnTask

SUBMIT_WITHIN_S = 2.0
INTERRUPT_WITHIN_S = 15.0
_LOOK_WITHIN_S = 5.0
_TRIES = 5  # a run that ends at this moment cannot take an update: the next try begins a new one
_RETRY_S = 0.05
_TASK_WITHIN = timedelta(seconds=5)  # how long a workflow task of a worker that was killed is missed

Connected = Callable[[], Awaitable[Client]]


class TemporalLoop:
    def __init__(self, connected: Connected, blobs: Blobs) -> None:
        self._connected = connected
        self._blobs = blobs

    async def submit(self, conversation: ConversationId, turn: TurnId | None = None) -> None:
        task = TurnTask(conversation=conversation, plan=_first_plan(conversation, turn) if turn else None)
        with _bounded(SUBMIT_WITHIN_S):
            await self._update(task, SUBMIT, SUBMIT_WITHIN_S)

    async def interrupt(
        self,
        conversation: ConversationId,
        turn: TurnId,
        *,
        by: str,
        reason: str | None,
        seen: int | None = None,
        is_awaited: bool = True,
    ) -> None:
        words = None if reason is None else await self._blobs.put(reason.encode("utf-8", "replace"))
        interrupt = Interrupt(turn=turn, by=by, words=words, seen=seen)
        with _bounded(INTERRUPT_WITHIN_S):
            await self._update(
                TurnTask(conversation=conversation), INTERRUPT, INTERRUPT_WITHIN_S, interrupt, is_awaited=is_awaited
            )

    async def is_running(self, conversation: ConversationId) -> bool:
        with _bounded(_LOOK_WITHIN_S):
            handle = (await self._connected()).get_workflow_handle(conversation)
            try:
                found = await handle.describe(rpc_timeout=timedelta(seconds=_LOOK_WITHIN_S))
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return False
                raise
            return found.status == WorkflowExecutionStatus.RUNNING

    async def restart(self, conversation: ConversationId, reason: str) -> None:
        with _bounded(SUBMIT_WITHIN_S):
            await self._update(TurnTask(conversation=conversation, recovered=reason), SUBMIT, SUBMIT_WITHIN_S)

    async def _update(
        self, task: TurnTask, name: str, within_s: float, *arguments: Interrupt, is_awaited: bool = False
    ) -> None:
        """Begin a run, or take the one that is open, and tell it."""
        client = await self._connected()
        for tries_left in reversed(range(_TRIES)):
            start = WithStartWorkflowOperation[object, None](
                TURN,
                task,
                id=task.conversation,
                task_queue=LOOP,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                task_timeout=_TASK_WITHIN,
            )
            try:
                update = await client.start_update_with_start_workflow(
                    name,
                    args=arguments,
                    start_workflow_operation=start,
                    wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                    rpc_timeout=timedelta(seconds=within_s),
                )
                if is_awaited:
                    await update.result(rpc_timeout=timedelta(seconds=within_s))
                return
            except (RPCError, TemporalError) as error:
                await _forget(start)
                if not tries_left or not _is_ending(error):
                    raise
            await anyio.sleep(_RETRY_S)


def _first_plan(conversation: ConversationId, turn: TurnId) -> Plan:
    """What a new run does first: the first answer of the turn. It is a guess that saves a look into the log: the step
    itself looks, and says what is next if it is something else."""
    return Plan(conversation=conversation, turn=turn, seq=0, model=ModelStep(step=step_id(turn, 1), n=1))


async def _forget(start: WithStartWorkflowOperation[object, None]) -> None:
    """The SDK keeps what went wrong for whoever asks, and complains when nobody does."""
    with suppress(RPCError, TemporalError):
        await start.workflow_handle()


@contextmanager
def _bounded(within_s: float) -> Iterator[None]:
    """One of our errors for whatever goes wrong, in a bounded time."""
    try:
        # The SDK has the same deadline, and leaves fewer loose ends when it is the one that gives up.
        with anyio.fail_after(within_s + 1.0):
            yield
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        raise DeadlineError("turn.slow", f"No worker took it within {within_s:g} s; it will be taken later.") from None
    except RPCError as error:
        raise UnavailableError("temporal.away", f"Temporal does not answer ({error.message}).") from error
    except TemporalError as error:
        raise UnavailableError("temporal.away", f"Temporal does not answer ({error}).") from error


def _is_ending(error: RPCError | TemporalError) -> bool:
    """Whether the run ended before it could take the update: the next try begins another."""
    if isinstance(error, RPCError):
        return error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.ABORTED, RPCStatusCode.FAILED_PRECONDITION)
    return isinstance(error, WorkflowUpdateFailedError)
