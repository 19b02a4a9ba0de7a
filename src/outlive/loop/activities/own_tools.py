"""A call of a user's tool, in the process of its worker: arguments from a blob, the function, its result into a blob.

Rule 1: an end is a value, whatever the function does. Raised is only what makes the outcome unknown: the worker has to
        end. Temporal tries that again if the tool is idempotent, and else does not.
Rule 2: it beats while the function runs, whatever that blocks. A heartbeat says how much was said, never what.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread
from temporalio import activity

from outlive.base import BrokenError, InvalidError, NotFoundError, OutliveError
from outlive.conversation.blobs import Blobs
from outlive.loop.failures import as_failure
from outlive.loop.tools.own.calling import LiveOutput
from outlive.loop.tools.own.running import Returned, Run, Runner
from outlive.loop.tools.own.wire import CALL_TOOL, CallAnswer, CallTask
from outlive.toolkit import Answer, DeclaredTool, ToolContext, answer_of, fit, tell_error

_BEAT_S = 0.5
_PUT_TRIES = 8
_PUT_RETRY_S = 0.25
_TIMEOUT = "It took longer than its timeout of {:g} s and was stopped. What it did until then is done."
_STUCK = (
    "It took longer than its timeout of {:g} s and could not be stopped: it may still go on. How far it came is "
    "unknown; look at what is there before you repeat it."
)


class OwnToolActivities:
    def __init__(self, tools: Mapping[str, DeclaredTool], runner: Runner, blobs: Blobs, live: LiveOutput) -> None:
        self._tools = tools
        self._runner = runner
        self._blobs = blobs
        self._live = live

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.call,)

    @activity.defn(name=CALL_TOOL)
    async def call(self, task: CallTask) -> CallAnswer:
        context = ToolContext(
            effect_id=task.effect,
            conversation=task.conversation,
            turn=task.turn,
            attempt=activity.info().attempt,
        )
        answers: list[CallAnswer] = []
        with as_failure():
            async with anyio.create_task_group() as group:

                async def take() -> None:
                    answers.append(await self._take(task, context))
                    group.cancel_scope.cancel()

                group.start_soon(self._beat, task, context)
                group.start_soon(take)
        return answers[0]

    async def _take(self, task: CallTask, context: ToolContext) -> CallAnswer:
        tool = self._tools.get(task.tool)
        if tool is None:
            return await self._sealed("rejected", f"The worker that was asked has no tool {task.tool!r} any more.")
        try:
            given = fit(tool, json.loads(await self._blobs.get(task.arguments)))
        except (InvalidError, NotFoundError, BrokenError, ValueError) as error:
            return await self._sealed("rejected", error.message if isinstance(error, OutliveError) else str(error))
        run = Run(tool, given, context)
        returned: Returned | None = None
        with anyio.move_on_after(tool.timeout_s):
            returned = await self._runner.run(run)
        if returned is not None:
            return await self._ended(returned)
        if run.is_over:
            return await self._sealed("failed", _TIMEOUT.format(tool.timeout_s))
        return await self._sealed("lost", _STUCK.format(tool.timeout_s))

    async def _ended(self, returned: Returned) -> CallAnswer:
        if returned.error is not None:
            return await self._sealed("failed", tell_error(returned.error))
        try:
            answer = await anyio.to_thread.run_sync(answer_of, returned.value)
        except InvalidError as error:
            return await self._sealed("failed", error.message)
        return await self._sealed("finished", answer)

    async def _sealed(self, outcome: Any, told: Answer | str) -> CallAnswer:
        answer = Answer(told.encode("utf-8", "replace"), is_text=True) if isinstance(told, str) else told
        return CallAnswer(outcome=outcome, output=await self._put(answer.content), is_text=answer.is_text)

    async def _put(self, content: bytes) -> str:
        """However it comes: what was done must not be unknown because a store was away for a moment."""
        for tries_left in reversed(range(_PUT_TRIES)):
            try:
                return await self._blobs.put(content)
            except OutliveError as error:
                if not tries_left or not error.is_retryable:
                    raise
            await anyio.sleep(_PUT_RETRY_S * 2 ** (_PUT_TRIES - tries_left))
        raise AssertionError("the last try returns or raises")

    async def _beat(self, task: CallTask, context: ToolContext) -> None:
        shown = 0
        try:
            while True:
                activity.heartbeat(shown)
                await anyio.sleep(_BEAT_S)
                said = context.said()
                if len(said) > shown:
                    with suppress(OutliveError):
                        await self._live.put(task.effect, said)
                        shown = len(said)
        finally:
            if shown:
                with anyio.move_on_after(1.0, shield=True), suppress(OutliveError):
                    await self._live.forget(task.effect)
