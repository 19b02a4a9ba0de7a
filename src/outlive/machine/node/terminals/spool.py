"""The journal of one terminal on its node: a folder with one file per segment, the newest of which is written to.

Rule 1: what `append` has returned for is in the kernel's hands: it survives the death of this process, at any moment.
        It is not flushed to the disk; a power cut may cost the last seconds, and what is left is whole.
Rule 2: offsets have no silent hole: output goes on where it ended, unless a seam or a gap says where it goes on.
Rule 3: a segment that is not in the object store yet is kept, up to `SPOOL_LIMIT` of them in all. Beyond, the output of
        the oldest goes and a gap stands in its place; what was typed, and by whom, is never dropped.
Rule 4: after that what is in the store goes too, but for what follows the newest snapshot: with it a restarted node
        rebuilds the screen without asking anybody.
"""

import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from outlive.base import BrokenError, ExhaustedError, TerminalId
from outlive.machine.node.terminals.mending import Mended, explained, mend, path_of, replace_file
from outlive.machine.terminal.journal import (
    RECORD_LIMIT,
    Header,
    Input,
    Mark,
    Output,
    Record,
    Snapshot,
    encode,
    encode_header,
    encode_many,
    read_all,
    without_output,
)

SEGMENT_BYTES = 256 * 1024  # then the next one is begun
SEGMENT_AGE_S = 10.0  # that a record may be old before it is to be in the object store
SNAPSHOT_EVERY = 4 * 1024 * 1024  # bytes of journal that a restarted node may have to feed to a screen
SPOOL_LIMIT = 64 * 1024 * 1024
RETAINED_LIMIT = 2 * SNAPSHOT_EVERY  # of what is in the object store too
_SNAPSHOT_LIMIT = RECORD_LIMIT // 2


def spool_folder(node_path: Path, terminal: TerminalId) -> Path:
    return node_path / "terminals" / terminal


@dataclass(slots=True)
class _File:
    n: int
    size: int
    at: datetime | None = None  # of its first record; None: it has none
    has_snapshot: bool = False
    has_output: bool = False
    is_uploaded: bool = False
    end: int = 0  # where output ends in it; known when it is complete


class Spool:
    """Get one with `begin` or `reopen`. For one task at a time; every call is a few system calls."""

    def __init__(self, folder: Path, terminal: TerminalId, *, limit: int = SPOOL_LIMIT) -> None:
        self.terminal = terminal
        self.offset = 0  # where output ends
        self.input_offset = 0  # where input ends
        self.generation = 0  # of the machine, for what is appended now
        self._folder = folder
        self._limit = limit
        self._files: list[_File] = []  # in the order of their numbers, which are dense; the last is written to
        self._descriptor = -1
        self._is_input_moved = False  # a seam came: the next input says where it goes on
        self._since_snapshot = 0
        self._sealed_bytes = 0  # of complete segments that wait; counted, since it is asked for with every piece

    @classmethod
    def begin(
        cls,
        folder: Path,
        terminal: TerminalId,
        *,
        n: int,
        offset: int,
        input_offset: int,
        generation: int,
        at: datetime,
        limit: int = SPOOL_LIMIT,
    ) -> "Spool":
        """An empty one whose first segment is `n`; what lies in the folder is removed."""
        spool = cls(folder, terminal, limit=limit)
        spool.offset, spool.input_offset, spool.generation = offset, input_offset, generation
        with explained():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True)
            spool._start_file(n, at)
        return spool

    @classmethod
    def reopen(cls, folder: Path, terminal: TerminalId, *, limit: int = SPOOL_LIMIT) -> "Spool | None":
        """As an earlier process left it, without the record it died in; None if there is nothing of use."""
        spool = cls(folder, terminal, limit=limit)
        with explained():
            found = mend(folder, terminal)
            if not found:
                return None
            spool._files = [_taken_up(one) for one in found]
            spool._open_last()
        last = found[-1]
        spool.offset, spool.input_offset, spool.generation = last.offset, last.input_offset, last.generation
        spool._is_input_moved = last.is_input_moved
        spool._sealed_bytes = sum(one.size for one in found[:-1])
        newest = max((place for place, one in enumerate(found) if one.has_snapshot), default=0)
        spool._since_snapshot = sum(one.size for one in found[newest:])
        return spool

    @property
    def n(self) -> int:
        """Number of the segment that is written to."""
        return self._files[-1].n

    @property
    def is_input_moved(self) -> bool:
        """A seam came: the next input says where it goes on."""
        return self._is_input_moved

    def move_input(self) -> None:
        """The next input may begin elsewhere, as after a seam."""
        self._is_input_moved = True

    @property
    def waiting_bytes(self) -> int:
        """Of the journal, that are not in the object store."""
        return self._sealed_bytes + self._files[-1].size

    @property
    def oldest_at(self) -> datetime | None:
        """The moment of the oldest record that is not in the object store."""
        return next((file.at for file in self._files if not file.is_uploaded and file.at is not None), None)

    @property
    def wants_snapshot(self) -> bool:
        return self._since_snapshot >= SNAPSHOT_EVERY

    def is_due(self, now: datetime) -> bool:
        """Whether something should go to the object store now."""
        if len(self._files) > 1 and not self._files[-2].is_uploaded:
            return True
        oldest = self.oldest_at
        return oldest is not None and (
            self._files[-1].size >= SEGMENT_BYTES or (now - oldest).total_seconds() >= SEGMENT_AGE_S
        )

    def append(self, record: Record) -> None:
        """`terminal.journal_order` (broken) if output or input would not go on where it ended. A snapshot that is too
        long is left out: it is a shortcut, and no more."""
        if isinstance(record, Snapshot) and len(record.drawing) > _SNAPSHOT_LIMIT:
            self._since_snapshot = 0
            return
        self._check(record)
        with explained():
            if self._files[-1].size >= SEGMENT_BYTES:
                self._cut(record.at)
            if isinstance(record, Input):
                self._check_room()
            self._write(encode(record))
        self._count(record)

    def cut(self, at: datetime, *, generation: int | None = None) -> None:
        """End the segment that is written to, if it has records, so that all of them can be uploaded. What follows
        belongs to `generation`."""
        is_other = generation is not None and generation != self.generation
        if generation is not None:
            self.generation = generation
        with explained():
            if self._files[-1].at is not None:
                self._cut(at)
            elif is_other:  # an empty one takes its new header in its place
                self._start_file(self._files.pop().n, at)

    def sealed(self) -> list[int]:
        """Numbers of the segments that are complete and not known to be in the object store, in order."""
        return [file.n for file in self._files[:-1] if not file.is_uploaded]

    def numbers(self, start: int = 0) -> list[int]:
        """Of all segments that are here and reach to `start` or beyond, in order; the one that is written to always."""
        return [file.n for file in self._files[:-1] if file.end >= start] + [self.n]

    def content(self, n: int) -> bytes | None:
        """A segment as it is now; None if it is not here."""
        with explained():
            try:
                return path_of(self._folder, n).read_bytes()
            except FileNotFoundError:
                return None

    def forget(self, n: int) -> None:
        """All segments up to `n` are in the object store."""
        for file in self._files[:-1]:
            if file.n <= n and not file.is_uploaded:
                file.is_uploaded = True
                self._sealed_bytes -= file.size
        with explained():
            self._prune()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        """Close it and remove all of it."""
        self.close()
        with explained():
            shutil.rmtree(self._folder, ignore_errors=True)

    # Appending

    def _check(self, record: Record) -> None:
        if isinstance(record, Output) and record.offset != self.offset:
            raise _disordered(f"output comes at {record.offset} and {self.offset} was next")
        if isinstance(record, Input) and record.input_offset != self.input_offset and not self._is_input_moved:
            raise _disordered(f"input comes at {record.input_offset} and {self.input_offset} was next")
        if isinstance(record, Mark) and record.kind in ("seam", "gap") and record.offset < self.offset:
            raise _disordered(f"a {record.kind} goes back to {record.offset} from {self.offset}")

    def _count(self, record: Record) -> None:
        file = self._files[-1]
        file.at = file.at or record.at
        if isinstance(record, Output):
            self.offset = record.end
            file.has_output = True
        elif isinstance(record, Input):
            self.input_offset = record.input_end
            self._is_input_moved = False
        elif isinstance(record, Snapshot):
            file.has_snapshot = True
            self._since_snapshot = 0
        elif isinstance(record, Mark) and record.kind in ("seam", "gap"):
            self.offset = record.offset
            self._is_input_moved = self._is_input_moved or record.kind == "seam"

    def _write(self, data: bytes) -> None:
        file = self._files[-1]
        try:
            written = os.write(self._descriptor, data)
            while written < len(data):  # a disk that fills up
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, file.size)
            raise
        file.size += len(data)
        self._since_snapshot += len(data)

    def _check_room(self) -> None:
        if self.waiting_bytes >= self._limit:
            raise ExhaustedError(
                "terminal.journal_full", "What was typed cannot be recorded: the object store is away for too long."
            )

    # Files

    def _cut(self, at: datetime) -> None:
        n = self.n + 1
        self._files[-1].end = self.offset
        self._sealed_bytes += self._files[-1].size
        self._start_file(n, at)
        while self.waiting_bytes > self._limit and self._strip_oldest():
            pass
        self._prune()

    def _start_file(self, n: int, at: datetime) -> None:
        header = Header(
            terminal=self.terminal,
            n=n,
            offset=self.offset,
            input_offset=self.input_offset,
            generation=self.generation,
            at=at,
        )
        content = encode_header(header)
        self.close()
        replace_file(self._folder, n, content)
        self._files.append(_File(n, len(content)))
        self._open_last()

    def _open_last(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path_of(self._folder, self._files[-1].n), flags)

    def _prune(self) -> None:
        """Remove what is in the object store and before the newest snapshot, or more than is kept in any case."""
        newest = max((file.n for file in self._files if file.has_snapshot), default=0)
        uploaded = sum(file.size for file in self._files if file.is_uploaded)
        while self._files[0].is_uploaded and (self._files[0].n < newest or uploaded > RETAINED_LIMIT):
            gone = self._files.pop(0)
            uploaded -= gone.size
            path_of(self._folder, gone.n).unlink(missing_ok=True)

    def _strip_oldest(self) -> bool:
        """Drop the output of the oldest segment that waits and has any. False if there is none."""
        for file in self._files[:-1]:
            if not file.is_uploaded and (file.has_output or file.has_snapshot):
                journal = read_all(path_of(self._folder, file.n).read_bytes())
                content = encode_header(journal.header) + encode_many(without_output(journal.records))
                replace_file(self._folder, file.n, content)
                self._sealed_bytes += len(content) - file.size
                file.size, file.has_output, file.has_snapshot = len(content), False, False
                return True
        return False


def _taken_up(one: Mended) -> _File:
    return _File(one.n, one.size, one.at, one.has_snapshot, one.has_output, end=one.offset)


def _disordered(why: str) -> BrokenError:
    return BrokenError("terminal.journal_order", f"The journal of a terminal would have a hole: {why}.")
