"""The files of a terminal's journal on disk, and how they are made whole after a crash.

Invariant: what `mend` returns is dense in its numbers and has no silent hole in its offsets, whatever was lost: where
bytes are missing, a gap stands in the journal.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from outlive.base import BrokenError, ExhaustedError, TerminalId, UnavailableError
from outlive.machine.terminal.journal import (
    Header,
    Input,
    Journal,
    Mark,
    Output,
    Record,
    Snapshot,
    encode,
    encode_header,
    end_of,
    read_all,
)

_NAME = re.compile(r"([0-9]{1,12})\.journal")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(slots=True)
class Mended:
    """One file, as it was found or made."""

    n: int
    size: int
    generation: int
    offset: int  # where output and input end
    input_offset: int
    at: datetime | None = None  # of its first record
    has_snapshot: bool = False
    has_output: bool = False
    is_input_moved: bool = False  # a seam came after the last input


def path_of(folder: Path, n: int) -> Path:
    return folder / f"{n}.journal"


def replace_file(folder: Path, n: int, content: bytes) -> None:
    """The file appears, or changes, whole."""
    staged = folder / f"{n}.new"
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    staged.rename(path_of(folder, n))


@contextmanager
def explained() -> Iterator[None]:
    """Errors of the disk in our words."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise ExhaustedError("terminal.no_room", "There is no room left on this node for a recording.") from error
        raise UnavailableError(
            "terminal.disk", f"The journal of a terminal cannot be used on this node: {error.strerror}."
        ) from error


def mend(folder: Path, terminal: TerminalId) -> list[Mended]:
    """What the folder holds of this terminal, in order: made whole, without what was torn."""
    if not folder.is_dir():
        return []
    for staged in folder.glob("*.new"):
        staged.unlink()
    names = [_NAME.fullmatch(path.name) for path in folder.iterdir()]
    files: list[Mended] = []
    for n in sorted(int(name[1]) for name in names if name):
        journal = _read(path_of(folder, n), terminal, n)
        if journal is not None:
            if files:
                _bridge(folder, files, journal.header)
            files.append(_summary(journal))
    return files


def _read(path: Path, terminal: TerminalId, n: int) -> Journal | None:
    """A file, cut at the first record that is not whole; removed if its very header is not."""
    content = path.read_bytes()
    try:
        journal = read_all(content)
    except BrokenError:
        path.unlink()
        return None
    if (journal.header.terminal, journal.header.n) != (terminal, n):
        path.unlink()
        return None
    if journal.valid_length < len(content):
        os.truncate(path, journal.valid_length)
    return journal


def _bridge(folder: Path, files: list[Mended], after: Header) -> None:
    """Lead from the last file to the header of the next one: with empty files for those that are missing, and with a
    gap where offsets are."""
    while (last := files[-1]).n + 1 < after.n:
        update = {"n": last.n + 1, "offset": last.offset, "input_offset": last.input_offset}
        header = after.model_copy(update=update)
        content = encode_header(header)
        replace_file(folder, header.n, content)
        files.append(_summary(Journal(header, [], len(content))))
    if last.offset < after.offset:
        data = encode(Mark(after.at, after.offset, "gap", {"from": last.offset, "to": after.offset}))
        with path_of(folder, last.n).open("ab") as file:
            file.write(data)
        last.size += len(data)
        last.at = last.at or after.at
        last.offset = after.offset


def _summary(journal: Journal) -> Mended:
    offset, input_offset = end_of(journal)
    records = journal.records
    return Mended(
        n=journal.header.n,
        size=journal.valid_length,
        generation=journal.header.generation,
        offset=offset,
        input_offset=input_offset,
        at=records[0].at if records else None,
        has_snapshot=any(isinstance(record, Snapshot) for record in records),
        has_output=any(isinstance(record, Output) for record in records),
        is_input_moved=_is_input_moved(records),
    )


def _is_input_moved(records: list[Record]) -> bool:
    for record in reversed(records):
        if isinstance(record, Input):
            return False
        if isinstance(record, Mark) and record.kind == "seam":
            return True
    return False
