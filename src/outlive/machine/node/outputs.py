"""What a command printed, kept on the host: a little inline, more in a spool file, all of it as an object at the end.

Rule: `kept` counts the bytes that would survive the death of this process. Only those are acknowledged to the guest,
which keeps the rest; so a restarted node takes up exactly where the file ends.
"""

from contextlib import suppress
from pathlib import Path

import anyio.to_thread
from blake3 import blake3

from outlive.storage.objects import ObjectStore

INLINE_LIMIT = 256 * 1024
_FOLDER = "outputs"


class KeptStream:
    """stdout or stderr of one command."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inline = bytearray()
        self.size = 0
        self.kept = 0

    @classmethod
    def reopen(cls, path: Path) -> "KeptStream":
        """With what an earlier process had put into the file."""
        stream = cls(path)
        try:
            with path.open("rb") as file:
                stream._inline += file.read(INLINE_LIMIT)
                stream.size = stream.kept = file.seek(0, 2)
        except (FileNotFoundError, NotADirectoryError):
            pass
        return stream

    def take(self, offset: int, data: bytes) -> bytes:
        """Add a piece; what came before already is left out. Returns what was new."""
        new = data[max(0, self.size - offset) :]
        if offset > self.size or not new:
            return b""
        room = INLINE_LIMIT - len(self._inline)
        if self.size + len(new) > INLINE_LIMIT:
            self._spool(new)
        self._inline += new[: max(0, room)]
        self.size += len(new)
        return new

    def _spool(self, new: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("r+b" if self.kept else "w+b") as file:
            if not self.kept:
                file.write(self._inline)
            file.seek(self.size)
            file.write(new)
        self.kept = self.size + len(new)

    @property
    def text(self) -> str:
        """The beginning of it. Bytes that are no UTF-8 are shown as the replacement character."""
        return self._inline.decode("utf-8", "replace")

    @property
    def is_longer(self) -> bool:
        return self.size > len(self._inline)

    async def store(self, objects: ObjectStore) -> str | None:
        """Put the whole of it into the object store, by its content; None if all of it is inline."""
        if not self.is_longer:
            return None
        content = await anyio.to_thread.run_sync(self._path.read_bytes)
        key = f"{_FOLDER}/{blake3(content).hexdigest()}"
        await objects.put_new(key, content)
        return key

    def discard(self) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            self._path.unlink()
