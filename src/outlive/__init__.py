"""Outlive: the self-hosted runtime for cloud agents. Here is the public door: `Client`, `AsyncClient`, and `tool`.

What is asked for is imported then, so that a server process does not carry the client, nor a tool the server.
"""

TYPE_CHECKING = False  # as `typing` has it, whose import the command would have to wait for
if TYPE_CHECKING:
    from typing import Any

    from outlive.client import AsyncClient, Client
    from outlive.toolkit import ToolContext, ToolError, tool

    __version__: str

__all__ = ["AsyncClient", "Client", "ToolContext", "ToolError", "__version__", "tool"]


def __getattr__(name: str) -> "Any":
    if name in ("AsyncClient", "Client"):
        import outlive.client

        return getattr(outlive.client, name)
    if name in ("ToolContext", "ToolError", "tool"):
        import outlive.toolkit

        return getattr(outlive.toolkit, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("outlive")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
