"""Outlive: the self-hosted runtime for cloud agents. Here is the public door: `Client`, `AsyncClient`.

The client is imported when it is asked for, so that a server process does not carry it.
"""

TYPE_CHECKING = False  # as `typing` has it, whose import the command would have to wait for
if TYPE_CHECKING:
    from typing import Any

    from outlive.client import AsyncClient, Client

    __version__: str

__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> "Any":
    if name in ("AsyncClient", "Client"):
        import outlive.client

        return getattr(outlive.client, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("outlive")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
