"""What MCP servers offer, as objects: one for each server and environment, replaced when it was looked up again."""

from pydantic import ValidationError

from outlive.base import NotFoundError
from outlive.loop.tools.mcp.listing import Listing
from outlive.storage.objects import ObjectStore


class ObjectListings:
    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def get(self, key: str) -> Listing | None:
        try:
            return Listing.model_validate_json(await self._objects.get(_key(key)))
        except (NotFoundError, ValidationError):  # of another version: it is looked up again
            return None

    async def put(self, key: str, listing: Listing) -> None:
        await self._objects.replace(_key(key), listing.model_dump_json().encode())


def _key(key: str) -> str:
    return f"mcp/{key}"
