"""The journal of a terminal: what was printed, typed by whom, resized, taken and given, in one order. Pure: bytes only.

A journal is a header and then records, each framed with its length, a checksum and its kind. It lies in files on the
node while it is written, and in the object store as segments for good: this is a durable format. A changed shape or a
new kind is a new `VERSION`, and what was written before is read for ever.

Invariant: reading never raises for what a crash leaves behind. A record that is cut off or damaged ends the journal
there, and everything before it is whole.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple
from zlib import crc32

import orjson
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from outlive.base import BrokenError, EffectId, InvalidError, PrincipalId, TerminalId
from outlive.governance.identity import PrincipalKind
from outlive.machine.terminal.status import Lease

VERSION = 2  # 1: without signals, what was given up, and leases that a `run` took
_READABLE = (1, 2)
MAGIC = b"OLtermjl"
RECORD_LIMIT = 4 * 1024 * 1024  # bytes of one record, framing not counted
MarkName = Literal["born", "exit", "seam", "gap", "title", "lost", "closed", "signal", "given_up"]
LeaseChange = Literal["attach", "take", "grant", "input", "run", "yield", "expiry", "end"]


class Actor(NamedTuple):
    """Who did it."""

    id: PrincipalId
    name: str
    kind: PrincipalKind


@dataclass(frozen=True, slots=True)
class Output:
    at: datetime
    offset: int  # of its first byte
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Input:
    at: datetime
    offset: int  # of the output, when it was typed
    input_offset: int  # of its first byte, among all that was typed
    operator: Actor
    data: bytes
    effect_id: EffectId | None = None

    @property
    def input_end(self) -> int:
        return self.input_offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Resize:
    at: datetime
    offset: int
    cols: int
    rows: int
    operator: Actor | None = None


@dataclass(frozen=True, slots=True)
class Leased:
    at: datetime
    offset: int
    lease: Lease | None  # from now on; None: it is free
    by: Actor | None  # None: nobody did it, it ran out
    how: LeaseChange


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to the terminal. `value` is small and plain, its shape belongs to `kind`:
    exit {"exit", "signal"}, seam {"from", "at", "generation"}, gap {"from", "to"}, title a text, signal {"number",
    "operator": {"id", "name", "kind"}}, given_up {"from", "to"}: bytes of the input, from null if not known. After a
    seam and a gap output goes on at their `offset`; after a seam input goes on wherever the machine was rolled back
    to."""

    at: datetime
    offset: int
    kind: MarkName
    value: JsonValue = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The screen at this moment, as bytes that draw it on a fresh terminal of its size."""

    at: datetime
    offset: int
    cols: int
    rows: int
    drawing: bytes


Record = Output | Input | Resize | Leased | Mark | Snapshot


class Header(BaseModel):
    """What stands in front of the records of one segment."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    terminal: TerminalId
    n: int
    offset: int  # where output stands at its start
    input_offset: int  # where input stands
    generation: int  # of the machine
    at: datetime


class Journal(NamedTuple):
    header: Header
    records: list[Record]
    valid_length: int  # in bytes, header included; what comes after is cut off or damaged


_FRAME = struct.Struct(">IIB")  # length of the body, crc32 of kind and body, kind
_PLACE = struct.Struct(">qQ")  # microseconds since 1970, offset
_NUMBER = struct.Struct(">Q")
_SIZE = struct.Struct(">HH")
_SHORT = struct.Struct(">H")
_START = struct.Struct(">8sHII")  # magic, version, length, crc32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_OUTPUT, _INPUT, _RESIZE, _LEASED, _MARK, _SNAPSHOT = range(1, 7)
_HEADER_LIMIT = 4096


class _WhoTyped(BaseModel):
    operator: Actor
    effect_id: EffectId | None = None


class _WhoResized(BaseModel):
    operator: Actor | None = None


class _Lease(BaseModel):
    lease: Lease | None
    by: Actor | None
    how: LeaseChange


class _Happened(BaseModel):
    kind: MarkName
    value: JsonValue


def encode_header(header: Header) -> bytes:
    body = orjson.dumps(header.model_dump(mode="json"))
    return _START.pack(MAGIC, VERSION, len(body), crc32(body)) + body


def encode(record: Record) -> bytes:
    """One record, framed. `terminal.record_limit` (invalid) if it is too big for any reader."""
    kind, body = _encode_body(record)
    if len(body) > RECORD_LIMIT - _PLACE.size:
        raise InvalidError("terminal.record_limit", f"A record of a terminal has at most {RECORD_LIMIT:,} bytes.")
    place = _PLACE.pack((record.at - _EPOCH) // _MICROSECOND, record.offset)
    checksum = crc32(body, crc32(place, crc32(bytes((kind,)))))
    return b"".join((_FRAME.pack(len(place) + len(body), checksum, kind), place, body))


def encode_many(records: Iterable[Record]) -> bytes:
    return b"".join(map(encode, records))


def _encode_body(record: Record) -> tuple[int, bytes]:
    match record:
        case Output():
            return _OUTPUT, record.data
        case Input():
            who = _described({"operator": _actor(record.operator), "effect_id": record.effect_id})
            return _INPUT, _NUMBER.pack(record.input_offset) + who + record.data
        case Resize():
            return _RESIZE, _SIZE.pack(record.cols, record.rows) + _described({"operator": _actor(record.operator)})
        case Leased():
            lease = record.lease.model_dump(mode="json", exclude={"is_forced"}) if record.lease else None
            return _LEASED, _described({"lease": lease, "by": _actor(record.by), "how": record.how})
        case Mark():
            return _MARK, _described({"kind": record.kind, "value": record.value})
        case Snapshot():
            return _SNAPSHOT, _SIZE.pack(record.cols, record.rows) + record.drawing


def _actor(actor: Actor | None) -> dict[str, str] | None:
    return None if actor is None else {"id": actor.id, "name": actor.name, "kind": actor.kind}


def signal_sent(at: datetime, offset: int, operator: Actor, number: int) -> Mark:
    return Mark(at, offset, "signal", {"number": number, "operator": {**operator._asdict()}})


def given_up(at: datetime, offset: int, start: int | None, to: int) -> Mark:
    """Of what was typed, these bytes did not get to the program."""
    return Mark(at, offset, "given_up", {"from": start, "to": to})


def _described(facts: dict[str, object]) -> bytes:
    text = orjson.dumps(facts)
    if len(text) > 0xFFFF:
        raise InvalidError("terminal.record_limit", "The facts of a terminal's record are too long.")
    return _SHORT.pack(len(text)) + text


def read_header(content: bytes) -> tuple[Header, int]:
    """The header and its length. `terminal.journal_damaged` (broken) if this is no journal of ours, or not all of the
    header is there."""
    try:
        magic, version, length, checksum = _START.unpack_from(content)
    except struct.error as error:
        raise damaged("it has no header") from error
    if magic != MAGIC or version not in _READABLE:
        raise damaged("it is something else, or of a newer version")
    body = content[_START.size : _START.size + length]
    if length > _HEADER_LIMIT or len(body) != length or crc32(body) != checksum:
        raise damaged("its header is cut off or changed")
    try:
        return Header.model_validate_json(body), _START.size + length
    except ValidationError as error:
        raise damaged("its header makes no sense") from error


def read_all(content: bytes) -> Journal:
    """Everything that is whole, up to the first record that is not."""
    header, at = read_header(content)
    records: list[Record] = []
    while (found := _read_one(content, at)) is not None:
        record, at = found
        records.append(record)
    return Journal(header, records, at)


def _read_one(content: bytes, at: int) -> tuple[Record, int] | None:
    start = at + _FRAME.size
    if start > len(content):
        return None
    length, checksum, kind = _FRAME.unpack_from(content, at)
    end = start + length
    if length < _PLACE.size or length > RECORD_LIMIT or end > len(content):
        return None
    if crc32(memoryview(content)[at + _FRAME.size - 1 : end]) != checksum:
        return None
    microseconds, offset = _PLACE.unpack_from(content, start)
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
        record = _decode_body(kind, moment, offset, content[start + _PLACE.size : end])
    except (struct.error, ValidationError, OverflowError):
        return None
    return None if record is None else (record, end)


def _decode_body(kind: int, at: datetime, offset: int, body: bytes) -> Record | None:
    if kind == _OUTPUT:
        return Output(at, offset, body)
    if kind == _INPUT:
        said, data = _facts_in(body, _NUMBER.size)
        who = _WhoTyped.model_validate_json(said)
        return Input(at, offset, _NUMBER.unpack_from(body)[0], who.operator, data, who.effect_id)
    if kind == _RESIZE:
        cols, rows = _SIZE.unpack_from(body)
        resized = _WhoResized.model_validate_json(_facts_in(body, _SIZE.size)[0])
        return Resize(at, offset, cols, rows, resized.operator)
    if kind == _LEASED:
        lease = _Lease.model_validate_json(_facts_in(body, 0)[0])
        return Leased(at, offset, lease.lease, lease.by, lease.how)
    if kind == _MARK:
        happened = _Happened.model_validate_json(_facts_in(body, 0)[0])
        return Mark(at, offset, happened.kind, happened.value)
    if kind == _SNAPSHOT:
        cols, rows = _SIZE.unpack_from(body)
        return Snapshot(at, offset, cols, rows, body[_SIZE.size :])
    return None


def _facts_in(body: bytes, at: int) -> tuple[bytes, bytes]:
    """The facts that stand there, and what comes after them."""
    (length,) = _SHORT.unpack_from(body, at)
    start = at + _SHORT.size
    return body[start : start + length], body[start + length :]


def records_in(content: bytes) -> list[Record]:
    """All records of a journal that is known to be whole: `terminal.journal_damaged` (broken) if it is not."""
    journal = read_all(content)
    if journal.valid_length != len(content):
        raise damaged(f"what comes after byte {journal.valid_length} cannot be read")
    return journal.records


def end_of(journal: Journal) -> tuple[int, int]:
    """Where output and input stand after the last record."""
    offset, input_offset = journal.header.offset, journal.header.input_offset
    for record in journal.records:
        if isinstance(record, Output):
            offset = record.end
        elif isinstance(record, Input):
            input_offset = record.input_end
        elif isinstance(record, Mark) and record.kind in ("seam", "gap"):
            offset = record.offset
    return offset, input_offset


def without_output(records: Iterable[Record]) -> list[Record]:
    """What is left when the output has to go: a gap where it was, and everything else. Snapshots are output too."""
    kept: list[Record] = []
    start: int | None = None
    last: Output | None = None

    def close_gap() -> None:
        nonlocal start, last
        if start is not None and last is not None:
            kept.append(Mark(last.at, last.end, "gap", {"from": start, "to": last.end}))
        start = last = None

    for record in records:
        if isinstance(record, Output):
            start = record.offset if start is None else start
            last = record
        elif not isinstance(record, Snapshot):
            close_gap()
            kept.append(record)
    close_gap()
    return kept


def damaged(why: str) -> BrokenError:
    return BrokenError("terminal.journal_damaged", f"The journal of a terminal is damaged: {why}.")
