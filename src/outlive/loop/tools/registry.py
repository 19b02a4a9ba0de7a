"""The tools that are built in, and running one: the way from a model's call to its result.

Whatever a call is, it has an end that the model is told. Raised is only what a retry of the step may mend, or `fenced`.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from outlive.base import FencedError, OutliveError
from outlive.conversation.events import ToolCall
from outlive.loop.models.messages import ToolSpec
from outlive.loop.tools.files import EditFile, ReadFile, WriteFile
from outlive.loop.tools.port import Outcome, Tool, ToolContext, ToolResult
from outlive.loop.tools.publish import Publish
from outlive.loop.tools.search import ListFiles, Search
from outlive.loop.tools.shell import ShellTool
from outlive.loop.tools.stopping import INTERRUPTED, MAY_HAVE_BEGUN, UNKNOWN
from outlive.loop.tools.subagent import Subagent
from outlive.loop.tools.waiting import AskHuman, Wait

_TOOLS: tuple[Tool, ...] = (
    *(ShellTool(), ReadFile(), WriteFile(), EditFile(), ListFiles(), Search(), Publish()),
    *(Wait(), AskHuman(), Subagent()),
)

BUILT_IN: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in _TOOLS})

# Nothing was begun, and it is not for the tool to mend it: a person has stopped the machine, or there is none.
_REJECTING = frozenset({"machine.paused", "machines.off", "terminal.leased", "terminal.denied", "terminal.take_denied"})


def specs_of(names: Collection[str], others: Iterable[Tool] = ()) -> tuple[ToolSpec, ...]:
    """What a model is told of its tools: the built-in ones of `names`, then the others. One that is nowhere any more is
    not told."""
    chosen = [*(tool for tool in BUILT_IN.values() if tool.name in names), *others]
    return tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in chosen)


async def run_tool(
    call: ToolCall, context: ToolContext, allowed: Collection[str] | None = None, other: Tool | None = None
) -> ToolResult:
    """What came of a call. `allowed`: the tools that its agent has; None: all. `other`: the one that is called, if it
    is not built in."""
    tool = BUILT_IN.get(call.name) or other
    names = [name for name in BUILT_IN if allowed is None or name in allowed]
    if tool is None and context.is_again:  # it may have been there for the attempt before
        return ToolResult("lost", f"There is no tool {call.name[:100]!r} any more. {MAY_HAVE_BEGUN}")
    if tool is None or (call.name in BUILT_IN and call.name not in names):
        text = f"There is no tool {call.name[:100]!r}; there are: {', '.join(names) or 'none'}."
        return ToolResult("rejected", text)
    try:
        return await tool.run(call, context)
    except OutliveError as error:
        if error.is_retryable or isinstance(error, FencedError):
            raise
        return ToolResult(outcome_of(error), error.message)


async def interrupt_tool(call: ToolCall, context: ToolContext, other: Tool | None = None) -> ToolResult:
    """End what still runs of a call, because a person has stopped the turn, or wants to be heard. What came of it."""
    tool = BUILT_IN.get(call.name) or other
    if tool is None and context.is_again:
        return ToolResult("lost", UNKNOWN)  # it was there for the attempt before
    told = await tool.interrupt(call, context) if tool is not None else None
    return told or ToolResult("failed", INTERRUPTED)


def outcome_of(error: OutliveError) -> Outcome:
    return "rejected" if error.code in _REJECTING else "failed"
