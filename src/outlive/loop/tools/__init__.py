"""Tools: the port, and the ones that are built in. They act in the conversation's machine, in the agent's name."""

from outlive.loop.tools.facts import RUNS, Runs
from outlive.loop.tools.port import LATER, Outcome, Say, Tool, ToolContext, ToolParts, ToolResult

__all__ = ["LATER", "RUNS", "Outcome", "Runs", "Say", "Tool", "ToolContext", "ToolParts", "ToolResult"]
