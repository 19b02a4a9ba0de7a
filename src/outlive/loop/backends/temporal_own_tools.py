"""Calls of users' tools as activities of Temporal that stand alone: on the queue of the worker that has the tool, their
id is the effect's. So whoever asks again finds the one that was begun, running or over."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import anyio
from temporalio.client import ActivityFailureError, ActivityHandle, Client
from temporalio.common import ActivityIDConflictPolicy, ActivityIDReusePolicy, RetryPolicy
from temporalio.exceptions import ActivityAlreadyStartedError, CancelledError, TemporalError, TimeoutError, TimeoutType
from temporalio.service import RPCError, RPCStatusCode

from outlive.base import EffectId, OutliveError, UnavailableError
from outlive.loop.queues import TOOLS_PREFIX
from outlive.loop.tools.own.calling import Ended, LiveOutput, Show
from outlive.loop.tools.own.offers import Offered
from outlive.loop.tools.own.wire import CALL_TOOL, CallAnswer, CallTask

HEARTBEAT_S = 10.0  # how long a worker that was killed is missed
ATTEMPTS = 5  # of an idempotent tool whose workers die
_MARGIN_S = 30.0  # that a worker has beyond a tool's own timeout, to say what came of it
_LOOK_S = 0.5
_FORGET_S = 2.0
_RPC = timedelta(seconds=10)
_NEVER, _NEVER_FOR = "tools.never", timedelta(seconds=1)
_STOP_WITHIN_S = 2.9  # a little more than a worker waits for the tool to stop


class TemporalOwnTools:
    """`wait_s`: that a call may wait for a worker."""

    def __init__(self, client: Client, live: LiveOutput, wait_s: float) -> None:
        self._client = client
        self._live = live
        self._wait_s = wait_s

    async def call(self, task: CallTask, of: Offered, *, may_begin: bool, show: Show) -> Ended:
        with _ours():
            handle = await self._begin(task, of) if may_begin else self._handle(task.effect)
            ended: list[Ended] = []
            async with anyio.create_task_group() as group:

                async def wait() -> None:
                    ended.append(await self._end_of(handle))
                    group.cancel_scope.cancel()

                group.start_soon(wait)
                group.start_soon(self._follow, handle, show)
            return ended[0]

    async def stop(self, effect: EffectId) -> Ended | None:
        handle = self._handle(effect)
        with _ours():
            if not await self._cancel(handle):
                if await self._forestall(effect):
                    return None
                await self._cancel(handle)  # it is over, or was begun just now
            with anyio.move_on_after(_STOP_WITHIN_S):
                return await self._end_of(handle)
        return Ended("lost")

    async def _cancel(self, handle: "ActivityHandle[CallAnswer]") -> bool:
        """False if there is none, or if it is over."""
        try:
            await handle.cancel(rpc_timeout=_RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    async def _forestall(self, effect: EffectId) -> bool:
        """Its start may be under way, whoever asked for it being gone. What stands under its id is a call on a queue of
        nobody's from now on; or one was begun, and it is False."""
        try:
            await self._client.start_activity(
                _NEVER,
                id=effect,
                task_queue=f"{TOOLS_PREFIX}/{_NEVER}",
                schedule_to_start_timeout=_NEVER_FOR,
                start_to_close_timeout=_NEVER_FOR,
                id_reuse_policy=ActivityIDReusePolicy.REJECT_DUPLICATE,
                rpc_timeout=_RPC,
            )
        except ActivityAlreadyStartedError:
            return False
        return True

    async def _begin(self, task: CallTask, of: Offered) -> "ActivityHandle[CallAnswer]":
        attempts = ATTEMPTS if of.tool.is_idempotent else 1
        try:
            return await self._client.start_activity(
                CALL_TOOL,
                task,
                id=task.effect,
                task_queue=of.queue,
                result_type=CallAnswer,
                schedule_to_start_timeout=timedelta(seconds=self._wait_s),
                start_to_close_timeout=timedelta(seconds=of.tool.timeout_s + _MARGIN_S),
                heartbeat_timeout=timedelta(seconds=HEARTBEAT_S),
                id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=ActivityIDReusePolicy.REJECT_DUPLICATE,
                retry_policy=RetryPolicy(maximum_attempts=attempts, initial_interval=timedelta(milliseconds=200)),
                rpc_timeout=_RPC,
            )
        except ActivityAlreadyStartedError:  # it is over: an attempt before this one began it
            return self._handle(task.effect)

    def _handle(self, effect: EffectId) -> "ActivityHandle[CallAnswer]":
        return self._client.get_activity_handle(effect, result_type=CallAnswer)

    async def _end_of(self, handle: "ActivityHandle[CallAnswer]") -> Ended:
        try:
            return Ended("answered", await handle.result())
        except ActivityFailureError as error:
            return await self._fate(handle, error.cause)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return Ended("lost")  # Temporal has forgotten it, or never knew

    async def _fate(self, handle: "ActivityHandle[CallAnswer]", cause: BaseException) -> Ended:
        has_begun = (await handle.describe(rpc_timeout=_RPC)).last_started_time is not None
        if has_begun:
            return Ended("lost")
        if isinstance(cause, TimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_START:
            return Ended("away")
        return Ended("stopped" if isinstance(cause, CancelledError) else "lost")

    async def _follow(self, handle: "ActivityHandle[CallAnswer]", show: Show) -> None:
        """Show what is said. A heartbeat tells how much that is; it carries no word of it."""
        shown = 0
        try:
            while True:
                await anyio.sleep(_LOOK_S)
                with suppress(RPCError, OutliveError):
                    seen = await handle.describe(include_heartbeat_details=True, rpc_timeout=_RPC)
                    details = await seen.heartbeat_details([int]) or [0]
                    if details[0] > shown:
                        text = await self._live.get(EffectId(handle.id))
                        show(text[shown:])
                        shown = max(shown, len(text))
        finally:
            if shown:  # its worker takes it away too, if it lives
                with anyio.move_on_after(_FORGET_S, shield=True), suppress(OutliveError):
                    await self._live.forget(EffectId(handle.id))


@contextmanager
def _ours() -> Iterator[None]:
    """One of our errors for whatever goes wrong with Temporal. A task group wraps it."""
    try:
        yield
    except (RPCError, TemporalError) as error:
        raise _away(error) from None
    except BaseExceptionGroup as group:
        found = group.subgroup((RPCError, TemporalError))
        if found is None:
            raise
        raise _away(found.exceptions[0]) from None


def _away(error: BaseException) -> UnavailableError:
    return UnavailableError("temporal.away", f"Temporal does not answer ({str(error)[:200]}).")
