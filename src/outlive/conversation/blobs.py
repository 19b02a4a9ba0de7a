"""Big payloads, by the BLAKE3 hash of their bytes: the port. The same bytes are stored once, whoever stores them."""

import re
from typing import Protocol

INLINE_LIMIT = 64 * 1024  # bytes of an event's encoded payload; more goes to the object store by itself
BLOB_LIMIT = 64 * 1024 * 1024

_SHAPE = re.compile(r"b3_[0-9a-f]{64}")


def is_blob_name(text: str) -> bool:
    return _SHAPE.fullmatch(text) is not None


class Blobs(Protocol):
    async def put(self, content: bytes) -> str:
        """Store `content`, durably, and return its name (`b3_` and the hash). Idempotent."""
        ...

    async def get(self, name: str) -> bytes:
        """The bytes of that name, checked against it. `not_found` if there are none, `broken` if they are damaged."""
        ...
