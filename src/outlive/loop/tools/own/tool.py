"""A tool of a user's, as a turn's tool step runs it: called on the worker that has it, its end told to the model.

It is run once under its effect id, or again only if it was declared idempotent. A step that is tried again, because a
worker of ours died, finds the run that was begun.
"""

import json

from pydantic import JsonValue

from outlive.base import BrokenError, NotFoundError
from outlive.conversation.events import ToolCall
from outlive.loop.tools.facts import Runs
from outlive.loop.tools.own.calling import Ended, OwnToolCaller
from outlive.loop.tools.own.offers import Offered
from outlive.loop.tools.own.wire import CallTask
from outlive.loop.tools.port import ToolContext, ToolResult
from outlive.loop.tools.results import shown
from outlive.loop.tools.stopping import UNKNOWN

LOST = (
    "The worker that ran this died, or was cut off, in the middle of it. Whether it happened, and how far it came, is "
    "unknown; it was not run again. Look at what is there before you repeat it."
)


class OwnTool:
    """A `Tool`. Whoever runs the same step again joins what was begun: in this sense it always is idempotent."""

    is_idempotent = True

    def __init__(self, offered: Offered, caller: OwnToolCaller, wait_s: float) -> None:
        self._offered = offered
        self._caller = caller
        self._wait_s = wait_s

    @property
    def name(self) -> str:
        return self._offered.name

    @property
    def description(self) -> str:
        return self._offered.tool.description

    @property
    def parameters(self) -> dict[str, JsonValue]:
        return self._offered.tool.parameters

    @property
    def runs(self) -> Runs:
        return self._offered.tool.runs

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if call.error is not None:
            return ToolResult("rejected", f"These arguments do not fit {call.name!r}; nothing was done.\n{call.error}")
        blobs = context.parts.conversations.blobs
        task = CallTask(
            effect=context.effect_id,
            tool=self.name,
            conversation=context.conversation,
            turn=context.turn,
            arguments=await blobs.put(json.dumps(call.arguments).encode()),
        )
        ended = await self._caller.call(
            task,
            self._offered,
            may_begin=self._offered.tool.is_idempotent or not context.is_again,
            show=lambda text: context.say(text, "stdout"),
        )
        return await self._told(ended, context)

    async def interrupt(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        """What had not begun never begins. What had, and did not end by itself in time, is unknown."""
        ended = await self._caller.stop(context.effect_id)
        if ended is None or ended.how in ("stopped", "away"):
            return None
        return ToolResult("lost", UNKNOWN) if ended.answer is None else await self._told(ended, context)

    async def _told(self, ended: Ended, context: ToolContext) -> ToolResult:
        if ended.answer is None:
            if ended.how in ("away", "stopped"):
                return ToolResult("rejected", self._away())
            return ToolResult("lost", LOST)
        answer = ended.answer
        try:
            content = await context.parts.conversations.blobs.get(answer.output)
        except (NotFoundError, BrokenError):
            return ToolResult("lost", "It ran to its end, but what it answered cannot be read any more.")
        if not answer.is_text:
            said = f"[{len(content):,} bytes that are no text. They are kept whole as {answer.output}.]"
            return ToolResult(answer.outcome, said, blob=answer.output)
        text, blob = await shown(context, content.decode("utf-8", "replace"))
        return ToolResult(answer.outcome, text or "[It returned nothing.]", blob=blob)

    def _away(self) -> str:
        return (
            f"No worker that has {self.name!r} took this call within {self._wait_s:g} seconds, so nothing was done. It "
            f"is run by workers of the queue {self._offered.queue!r}, which seem to be away. Go on without it, or try "
            "it later."
        )
