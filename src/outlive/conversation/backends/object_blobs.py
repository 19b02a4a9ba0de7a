"""Blobs in an object store: the key is made of the hash of the content, so the same bytes are stored once.

Rule: a name that `put` returned has its bytes. So a blob that was there before is read and compared: a damaged one is
replaced, and is not called stored because something lies under its key. `get` never returns bytes that are not
those of the name.
"""

import anyio.to_thread
from blake3 import blake3

from outlive.base import BrokenError, CrashPoint, ExhaustedError, InvalidError, NotFoundError, reach
from outlive.conversation.blobs import BLOB_LIMIT, is_blob_name
from outlive.storage.objects import ObjectStore

_HASHED_IN_PLACE = 256 * 1024  # bytes; hashing more than that is moved off the event loop


class ObjectBlobs:
    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def put(self, content: bytes) -> str:
        if len(content) > BLOB_LIMIT:
            raise ExhaustedError(
                "blob.too_big", f"A blob has at most {BLOB_LIMIT} bytes; this one has {len(content)}.", limit=BLOB_LIMIT
            )
        digest = await _hash(content)
        key = _key(digest)
        reach(CrashPoint.BLOB_BEFORE_PUT)
        if not await self._objects.put_new(key, content) and not await self._has(key, content):
            await self._objects.replace(key, content)
        reach(CrashPoint.BLOB_AFTER_PUT)
        return f"b3_{digest}"

    async def get(self, name: str) -> bytes:
        if not is_blob_name(name):
            raise InvalidError("blob.name", f"{name[:100]!r} is not the name of a blob.")
        digest = name.removeprefix("b3_")
        try:
            content = await self._objects.get(_key(digest))
        except NotFoundError as error:
            if error.code != "objects.not_found":
                raise
            raise NotFoundError("blob.not_found", f"There is no blob {name!r}.") from error
        if await _hash(content) != digest:
            raise BrokenError("blob.damaged", f"The stored bytes of blob {name!r} are not those of its name.")
        return content

    async def _has(self, key: str, content: bytes) -> bool:
        try:
            return await self._objects.get(key) == content
        except NotFoundError:  # deleted between the two looks
            return False


def _key(digest: str) -> str:
    return f"blobs/{digest[:2]}/{digest}"


async def _hash(content: bytes) -> str:
    if len(content) <= _HASHED_IN_PLACE:
        return blake3(content).hexdigest()
    return await anyio.to_thread.run_sync(lambda: blake3(content).hexdigest())
