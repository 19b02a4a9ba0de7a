"""HTTP: translates, decides nothing. See ARCHITECTURE.md."""

from typing import TYPE_CHECKING, Any

from outlive.api.errors import HEADERS_LIMIT, HEADERS_TOO_LARGE, HEADERS_TOO_SLOW, UNREADABLE
from outlive.api.parts import FOLLOWERS_LIMIT, ApiParts, MachineParts, TerminalParts
from outlive.api.raw import RawStream

if TYPE_CHECKING:
    from outlive.api.app import create_app

__all__ = [
    "FOLLOWERS_LIMIT",
    "HEADERS_LIMIT",
    "HEADERS_TOO_LARGE",
    "HEADERS_TOO_SLOW",
    "UNREADABLE",
    "ApiParts",
    "MachineParts",
    "RawStream",
    "TerminalParts",
    "create_app",
]


def __getattr__(name: str) -> Any:
    """The application is imported when it is asked for: a node serves HTTP too, and starts in half the time without."""
    if name == "create_app":
        from outlive.api.app import create_app

        return create_app
    raise AttributeError(name)
