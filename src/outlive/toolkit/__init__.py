"""What the author of a tool writes with. Imports base only: a package of tools does not carry the server.

from outlive import tool

@tool
def weather(city: str) -> str:
    "The weather in a city, now."
"""

from outlive.toolkit.answers import Answer, answer_of, tell_error
from outlive.toolkit.context import ToolContext
from outlive.toolkit.declared import DeclaredTool, ToolError, fit, tool
from outlive.toolkit.loading import load_tools
from outlive.toolkit.schema import without_titles

__all__ = [
    "Answer",
    "DeclaredTool",
    "ToolContext",
    "ToolError",
    "answer_of",
    "fit",
    "load_tools",
    "tell_error",
    "tool",
    "without_titles",
]
