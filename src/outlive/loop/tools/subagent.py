"""`subagent`: a part of the work as a conversation of its own. The turn waits for it at no cost; its answer is the
result. Detached, its report comes as a message, whatever became of the turn."""

from typing import Literal

from pydantic import Field

from outlive.conversation.events import ToolCall
from outlive.loop.tools.arguments import Arguments, Text
from outlive.loop.tools.built_in import BuiltIn
from outlive.loop.tools.port import ToolContext, ToolResult

PROMPT_LIMIT = 256 * 1024  # characters


class SubagentArguments(Arguments):
    prompt: Text = Field(
        min_length=1, max_length=PROMPT_LIMIT, description="The whole task: it knows nothing of this conversation."
    )
    agent: Text | None = Field(None, min_length=1, max_length=64, description="Which agent; without, one like you.")
    machine: Literal["same", "fork", "new"] = Field(
        "same", description="same: your machine. fork: a copy of it, deleted when it is done. new: an empty one."
    )
    detached: bool = Field(False, description="Do not wait: it goes on by itself, and its report comes as a message.")


class Subagent(BuiltIn[SubagentArguments]):
    name = "subagent"
    description = (
        "Give a part of the work to another agent, with a conversation of its own, and get its last answer. Several in "
        "one answer work at the same time: give each a fork if they change files."
    )
    arguments = SubagentArguments

    async def act(self, arguments: SubagentArguments, context: ToolContext) -> ToolResult:
        subagents = context.parts.subagents
        if subagents is None:
            return ToolResult("rejected", "There are no subagents here.")
        given = (arguments.prompt, arguments.agent, arguments.machine)
        return await subagents.run(context, *given, detached=arguments.detached)

    async def interrupt(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        return None if context.parts.subagents is None else await context.parts.subagents.stop(context)
