"""The record of a batch: a folder that a run goes on from.

    batch.json         what the batch is: its id, its file, its agent; written once, before anything is asked for
    results.jsonl      what is done, each item once; only ever added to, but when an item was edited
    failures.jsonl     what ended in another way, as it stands now; written anew, by rename
    waiting.jsonl      what waits for somebody, as the last run left it
    superseded.jsonl   what was recorded of items that were edited or taken out since

Rule 1: one process at a time (`lock`).
Rule 2: the record is a memory of the server's log, and may lack its end: what is missing is found on the server. So it
        is synced now and then, and a torn last line is cut.
Rule 3: a result is written before its earlier failure is taken out. In both means done.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from outlive.base import ConflictError, InvalidError, NotFoundError
from outlive.client.batches.items import Item
from outlive.client.batches.plan import Counts, Line, Plan, count, plan, to_retry

HEADER = "batch.json"
RESULTS, FAILURES, WAITING, SUPERSEDED = "results.jsonl", "failures.jsonl", "waiting.jsonl", "superseded.jsonl"


@dataclass(frozen=True, slots=True)
class Header:
    """What a batch is. Everything that it makes on the server is named after `batch`."""

    batch: str
    file: str
    agent: str | None
    model: str | None
    environment: str | None
    column: str | None
    since: str | None
    """When the newest conversation before the batch was made, by the server's clock: none of ours is older."""


def read_header(folder: Path) -> Header | None:
    """None: there is no batch in this folder."""
    try:
        raw = json.loads((folder / HEADER).read_text("utf-8"))
        return Header(**{field.name: raw.get(field.name) for field in fields(Header)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidError("batch.unreadable", f"{str(folder / HEADER)!r} cannot be read: {error}.") from None


class Record:
    """An open record. Made by `open_record`."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder = folder
        self.header = header
        self.results = _read_lines(folder / RESULTS)
        self.failures = _read_lines(folder / FAILURES)
        self.waiting = _read_lines(folder / WAITING)
        self._written = len(self.results)
        self._is_changed = False

    @property
    def unwritten(self) -> int:
        """How many results and failures would have to be looked up again, if we were killed now."""
        return len(self.results) - self._written + int(self._is_changed)

    def settle(self, items: Sequence[Item]) -> Plan:
        """Bring the record in line with the file; what is left to do."""
        settled = plan(items, self.results, self.failures)
        if settled.superseded:
            before = _read_lines(self.folder / SUPERSEDED)
            _append(self.folder / SUPERSEDED, [line for line in settled.superseded if line not in before])
        if settled.results != self.results:
            _write(self.folder / RESULTS, settled.results)
        self._is_changed |= settled.failures != self.failures
        self.results, self.failures, self._written = settled.results, settled.failures, len(settled.results)
        self.flush()
        return settled

    def retry(self) -> int:
        """Mark every failure to be tried again; how many. Durable when it returns."""
        self.failures = to_retry(self.failures)
        self._is_changed = True
        self.flush()
        return len(self.failures)

    def add(self, line: Line) -> None:
        """What came of an item."""
        if line["outcome"] == "done":
            self.results.append(line)
        self._is_changed |= line["outcome"] != "done" or any(each["key"] == line["key"] for each in self.failures)
        if self._is_changed:
            self.failures = [each for each in self.failures if each["key"] != line["key"]]
            self.failures += [] if line["outcome"] == "done" else [line]

    def put_aside(self, waiting: Iterable[Line]) -> None:
        self.waiting = [*waiting]
        _write(self.folder / WAITING, self.waiting)

    def flush(self) -> None:
        """On the disk when it returns."""
        _append(self.folder / RESULTS, self.results[self._written :])
        self._written = len(self.results)
        if self._is_changed:
            _write(self.folder / FAILURES, self.failures)
            self._is_changed = False

    def counts(self, items: int) -> Counts:
        return count(items, self.results, self.failures, self.waiting)


class Glance(NamedTuple):
    """A record as it stands on the disk, read by somebody who does not hold it."""

    header: Header
    results: list[Line]
    failures: list[Line]
    waiting: list[Line]


def glance(folder: Path) -> Glance:
    header = read_header(folder)
    if header is None:
        raise _no_batch(folder)
    return Glance(header, *(_read_lines(folder / name, cut=False) for name in (RESULTS, FAILURES, WAITING)))


def _no_batch(folder: Path) -> NotFoundError:
    return NotFoundError("batch.not_found", f"There is no batch in {str(folder)!r}: it has no {HEADER}.")


@contextmanager
def open_record(folder: Path, header: Header | None = None) -> Iterator[Record]:
    """The record in `folder`, for this process alone. With `header` it is begun, unless it has been already."""
    if header is not None:
        folder.mkdir(parents=True, exist_ok=True)
    elif read_header(folder) is None:
        raise _no_batch(folder)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError("batch.running", f"The batch in {str(folder)!r} is being run already.") from None
        found = read_header(folder)
        if found is None:
            assert header is not None
            found = header
            _write_text(folder / HEADER, json.dumps(asdict(header), indent=2) + "\n")
        record = Record(folder, found)
        try:
            yield record
        finally:
            record.flush()


# ── files ──


def _read_lines(path: Path, *, cut: bool = True) -> list[Line]:
    """The lines up to the first that cannot be read: there we were killed while it was written. With `cut` the file
    ends there too; what is missing is looked up on the server."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    lines: list[Line] = []
    good = 0
    for text in content.splitlines(keepends=True):
        try:
            line = json.loads(text) if text.endswith(b"\n") else None
        except ValueError:
            line = None
        if not isinstance(line, dict) or "key" not in line or "outcome" not in line:
            break
        lines.append(line)
        good += len(text)
    if cut and good < len(content):
        os.truncate(path, good)
    return lines


def _text(lines: Iterable[Line]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def _append(path: Path, lines: Sequence[Line]) -> None:
    if not lines:
        return
    is_new = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        file.write(_text(lines))
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _sync_folder(path.parent)


def _write(path: Path, lines: Iterable[Line]) -> None:
    _write_text(path, _text(lines))


def _write_text(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
