"""What a build says, kept in the object store and readable while it runs: one object, replaced as it grows.

Bounded: beyond `LOG_LIMIT` nothing more is kept, and that is said. It only ever grows while a build goes on, so that a
reader may ask for what is new by how much it has: a build that is begun again, because its worker died, stores nothing
until it has said more than was kept before.
"""

import logging

import anyio

from outlive.base import NotFoundError, OutliveError
from outlive.machine.door import Output
from outlive.machine.status import Effect
from outlive.storage.objects import ObjectStore

LOG_LIMIT = 1024 * 1024  # bytes
_FULL = b"\n[The log is full: the rest is not kept.]\n"
_FLUSH_EVERY_S = 1.0
_LAST_WITHIN_S = 10.0

_log = logging.getLogger(__name__)


def log_key(digest: str, tries: int) -> str:
    return f"environments/{digest}/{tries}.log"


class BuildLog:
    def __init__(self, objects: ObjectStore, key: str) -> None:
        self._objects = objects
        self._key = key
        self._said = bytearray()
        self._before = b""
        self._flushed = -1

    async def begin(self) -> None:
        """From here on there is a log to read, if the store can be reached: an empty one, or what a worker that died
        had kept of this build."""
        try:
            with anyio.move_on_after(_LAST_WITHIN_S):
                self._before = await self._objects.get(self._key)
                self._flushed = len(self._before)
        except NotFoundError:
            await self.flush()
        except OutliveError as error:
            _log.warning("the log of a build could not be read: %s", error.message)

    def go_on(self) -> None:
        """What was said before stands: the steps that said it are not done again."""
        self._said[:] = self._before

    def say(self, text: str) -> None:
        """A line of our own, on a line of its own."""
        self.add((b"" if not self._said or self._said.endswith(b"\n") else b"\n") + text.encode() + b"\n")

    def add(self, data: bytes) -> None:
        room = LOG_LIMIT - len(self._said)
        if room <= 0:
            return
        self._said += data[:room]
        if len(data) >= room:
            self._said += _FULL

    async def keep(self) -> None:
        """Store it again and again, for ever."""
        while True:
            await self.flush()
            await anyio.sleep(_FLUSH_EVERY_S)

    async def flush(self, *, is_last: bool = False) -> None:
        """Store what is more than is stored; the last time, whatever there is. A store that is away costs the log, not
        the build."""
        size = len(self._said)
        if size <= self._flushed and not is_last:
            return
        try:
            with anyio.move_on_after(_LAST_WITHIN_S):
                await self._objects.replace(self._key, bytes(self._said))
                self._flushed = size
        except OutliveError as error:
            _log.warning("the log of a build could not be stored: %s", error.message)


class CommandOutput:
    """Puts what one command prints into the log, each byte once, wherever it comes from: followed live, or told by its
    result. From the first gap on (we came late, or were too slow) the result tells."""

    def __init__(self, log: BuildLog) -> None:
        self._log = log
        self._seen = {"stdout": 0, "stderr": 0}

    def take(self, output: Output) -> None:
        seen = self._seen[output.stream]
        end = output.offset + len(output.data)
        if output.offset <= seen < end:
            self._log.add(output.data[seen - output.offset :])
            self._seen[output.stream] = end

    def end(self, effect: Effect) -> None:
        for stream, text in (("stdout", effect.stdout), ("stderr", effect.stderr)):
            self._log.add(text.encode(errors="replace")[self._seen[stream] :])
        if effect.truncated:
            self._log.say("[It printed more than is kept here.]")
