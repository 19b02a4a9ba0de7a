"""HTTP: translates, decides nothing. See ARCHITECTURE.md."""

from outlive.api.app import create_app
from outlive.api.errors import HEADERS_LIMIT, HEADERS_TOO_LARGE, HEADERS_TOO_SLOW, UNREADABLE
from outlive.api.parts import FOLLOWERS_LIMIT, ApiParts, MachineParts
from outlive.api.raw import RawStream

__all__ = [
    "FOLLOWERS_LIMIT",
    "HEADERS_LIMIT",
    "HEADERS_TOO_LARGE",
    "HEADERS_TOO_SLOW",
    "UNREADABLE",
    "ApiParts",
    "MachineParts",
    "RawStream",
    "create_app",
]
