"""One segment of a recording as an object: a journal, compressed, under a key that holds its hash. Pure.

Invariant: an object that is not byte for byte what was put is `broken`, and never decompressed; one that was put and
would be too big when it is opened is `broken` too, before memory is taken for it.
"""

from typing import NamedTuple

import zstandard
from blake3 import blake3

from outlive.base import BrokenError, TerminalId
from outlive.machine.terminal.journal import Journal, Mark, Output, end_of, read_all
from outlive.machine.terminal.status import Segment

FOLDER = "terminals"
OPENED_LIMIT = 16 * 1024 * 1024
_LEVEL = 3
_HASH_LETTERS = 32  # 128 bits


class Packed(NamedTuple):
    segment: Segment
    content: bytes


def folder_of(terminal: TerminalId) -> str:
    return f"{FOLDER}/{terminal}"


def pack(content: bytes) -> Packed:
    """The object of a complete segment, and what the index says of it."""
    journal = read_all(content)
    header, records = journal.header, journal.records
    packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(content[: journal.valid_length])
    end, input_end = end_of(journal)
    segment = Segment(
        terminal=header.terminal,
        n=header.n,
        start=_start_of(journal, end),
        end=end,
        input_start=min(header.input_offset, input_end),
        input_end=input_end,
        begun_at=records[0].at if records else header.at,
        ended_at=records[-1].at if records else header.at,
        key=f"{folder_of(header.terminal)}/{header.n}-{_hash_of(packed)}",
        size=len(packed),
        generation=header.generation,
    )
    return Packed(segment, packed)


def _start_of(journal: Journal, end: int) -> int:
    for record in journal.records:
        if isinstance(record, Output):
            return record.offset
        if isinstance(record, Mark) and record.kind == "gap" and isinstance(record.value, dict):
            start = record.value.get("from")
            return start if isinstance(start, int) else record.offset
    return end


def unpack(segment: Segment, content: bytes) -> bytes:
    if len(content) != segment.size or not segment.key.endswith(f"-{_hash_of(content)}"):
        raise damaged(segment.key, "it is not what was put there")
    try:
        claimed = zstandard.get_frame_parameters(content).content_size
        if claimed > OPENED_LIMIT:
            raise damaged(segment.key, "it claims to be too long")
        decompressor = zstandard.ZstdDecompressor(max_window_size=OPENED_LIMIT)
        return decompressor.decompress(content, max_output_size=OPENED_LIMIT)
    except zstandard.ZstdError as error:
        raise damaged(segment.key, "it cannot be decompressed") from error


def _hash_of(content: bytes) -> str:
    return blake3(content).hexdigest()[:_HASH_LETTERS]


def damaged(key: str, why: str) -> BrokenError:
    return BrokenError("terminal.recording_damaged", f"The object {key!r} is damaged: {why}.", object=key)
