"""What a build says, kept in the object store and readable while it runs: one object, replaced as it grows.

Rule 1: what was kept is only ever added to, so that a reader may ask for what is new by how much it has. A build that
        is begun again, because its worker died, adds nothing while it says the same again; where it says something
        else, that follows under a line of its own.
Rule 2: nothing is stored until it is known what is kept.
Rule 3: bounded: beyond `LOG_LIMIT` nothing more is kept, and that is said.

There is one writer at a time, as far as workers can tell: one that stood still for long, and wakes, puts back what it
knew until it hears that its build was given to another.
"""

import logging

import anyio

from outlive.base import NotFoundError, OutliveError
from outlive.machine.door import Output
from outlive.machine.status import Effect
from outlive.storage.objects import ObjectStore

LOG_LIMIT = 1024 * 1024  # bytes
_AGAIN = "[Begun again.]"
_FULL = b"\n[The log is full: the rest is not kept.]\n"
_FLUSH_EVERY_S = 1.0
_WITHIN_S = 10.0

_log = logging.getLogger(__name__)


def log_key(digest: str, tries: int) -> str:
    return f"environments/{digest}/{tries}.log"


class BuildLog:
    def __init__(self, objects: ObjectStore, key: str) -> None:
        self._objects = objects
        self._key = key
        self._said = bytearray()
        self._kept: bytes | None = None  # None: not known yet
        self._flushing = anyio.Lock()  # two at once could end with the older text

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

    async def flush(self) -> None:
        """Store what is more than is kept; at first also if it is nothing, so that there is a log to read. A store that
        is away costs the log, not the build."""
        try:
            async with self._flushing:
                with anyio.fail_after(_WITHIN_S, shield=True):  # a write that is let go may end after a newer one
                    if self._kept is None:
                        self._kept = await self._look()
                    await self._store(self._kept)
        except OutliveError as error:
            _log.warning("the log of a build is not kept for now: %s", error.message)
        except TimeoutError:
            _log.warning("the log of a build is not kept for now: the store did not answer in %g s", _WITHIN_S)

    async def _look(self) -> bytes:
        try:
            return await self._objects.get(self._key)
        except NotFoundError:
            said = bytes(self._said)
            await self._objects.replace(self._key, said)
            return said

    async def _store(self, kept: bytes) -> None:
        said = bytes(self._said)
        if kept.startswith(said):
            return
        if not said.startswith(kept):  # another worker's, which got further or elsewhere
            self._said[:] = kept
            self.say(_AGAIN)
            self.add(said)
            said = bytes(self._said)
        if len(said) > len(kept):  # else it is full
            await self._objects.replace(self._key, said)
            self._kept = said


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
