"""HTTP: translates, decides nothing. See ARCHITECTURE.md."""

from outlive.api.app import create_app
from outlive.api.errors import UNREADABLE
from outlive.api.parts import ApiParts

__all__ = ["UNREADABLE", "ApiParts", "create_app"]
