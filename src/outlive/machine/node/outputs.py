"""What a command printed, kept on the host: a little inline, more in a spool file, all of it as an object at the end.

Rule: `kept` counts the bytes that would survive the death of this process. Only those are acknowledged to the guest,
which keeps the rest; so a restarted node takes up exactly where the file ends.
"""

import os
from contextlib import suppress
from pathlib import Path

import anyio.to_thread
from blake3 import blake3

from outlive.base import MachineId
from outlive.storage.objects import ObjectStore

INLINE_LIMIT = 256 * 1024
OUTPUT_LIMIT = 64 * 1024 * 1024
_FOLDER = "outputs"


def spool_of(node_path: Path, machine: MachineId) -> Path:
    """Where the long outputs of a machine's commands wait for their end."""
    return node_path / "spool" / machine


class KeptStream:
    """stdout or stderr of one command."""

    def __init__(self, path: Path, limit: int = OUTPUT_LIMIT) -> None:
        self._path = path
        self._limit = limit
        self._inline = bytearray()
        self._held = 0  # bytes that are here: inline, or in the file
        self.size = 0  # of the stream so far, what is not here included
        self.kept = 0

    @classmethod
    def reopen(cls, path: Path, limit: int = OUTPUT_LIMIT) -> "KeptStream":
        """With what an earlier process had put into the file."""
        stream = cls(path, limit)
        try:
            with path.open("rb") as file:
                stream._inline += file.read(INLINE_LIMIT)
                stream._held = stream.size = stream.kept = file.seek(0, 2)
        except (FileNotFoundError, NotADirectoryError):
            pass
        return stream

    @property
    def missing(self) -> int:
        """Bytes that were printed and are not here: another node had them, or they were beyond the bound."""
        return self.size - self._held

    def rewind(self, offset: int) -> None:
        """What comes next begins here. An earlier process may have kept more than this, and perhaps of a time that the
        machine has been rolled back behind: what was acknowledged is before the offset, and all else comes again."""
        if offset >= self._held:
            return
        if self._held > INLINE_LIMIT:
            os.truncate(self._path, offset)
        del self._inline[offset:]
        self._held = self.size = offset
        self.kept = offset if offset > INLINE_LIMIT else 0

    def take(self, offset: int, data: bytes) -> bytes:
        """Add a piece; what came before already is left out. Returns what was new. A gap before it is counted, and so
        is what goes beyond the bound: a guest keeps to that by itself, but its word is not enough."""
        new = data[max(0, self.size - offset) :]
        if not new:
            return b""
        self.size = max(self.size, offset)
        fitting = new[: max(0, self._limit - self._held)]
        room = INLINE_LIMIT - len(self._inline)
        if fitting and self._held + len(fitting) > INLINE_LIMIT:
            self._spool(fitting)
        self._inline += fitting[: max(0, room)]
        self._held += len(fitting)
        self.size += len(new)
        if self._held > INLINE_LIMIT:
            self.kept = self.size
        return new

    def _spool(self, new: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        is_first = self._held <= INLINE_LIMIT
        with self._path.open("w+b" if is_first else "r+b") as file:
            if is_first:
                file.write(self._inline)
            file.seek(self._held)
            file.write(new)

    @property
    def beginning(self) -> bytes:
        """From the first byte on, as much as is at hand; nothing if some of it is not here."""
        return b"" if self.missing else bytes(self._inline)

    @property
    def text(self) -> str:
        """The beginning of it. Bytes that are no UTF-8 are shown as the replacement character."""
        return self._inline.decode("utf-8", "replace")

    @property
    def is_longer(self) -> bool:
        return self._held > len(self._inline)

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
        with suppress(OSError):  # other commands have files there, or none was made
            self._path.parent.rmdir()
