"""Where streams are cut into chunks. Pure.

Memory is cut into pages: between two checkpoints pages change singly and move as wholes, so a page is what stays the
same. Everything else is cut where its content says so: a boundary is where a hash of the last 16 bytes is small, so an
insertion moves the boundaries with the bytes and only the chunks around it are new.

Invariant: where a chunk ends depends only on the bytes since the last cut, never on how the stream came in blocks.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

PAGE = 4096
SMALLEST_CHUNK = 8 * 1024
LARGEST_CHUNK = 128 * 1024
BLOCK = 1024 * 1024  # what is read at once

_ODD = 0x9E3779B1
_MIX = 0x85EBCA6B
_CUT_BELOW = 2**32 // (32 * 1024)  # a boundary every 32 KiB on average
_HASHED_AT_ONCE = 64 * 1024  # fits the cache: 500 MB/s; four times as much halves that
_WINDOW = 16  # far below SMALLEST_CHUNK, so no window that counts reaches back over a cut
_POWERS = tuple((width, pow(_ODD, width, 2**32)) for width in (1, 2, 4, 8))


class Cut(NamedTuple):
    """Some whole chunks: `block` up to `ends[0]`, from there to `ends[1]`, and so on; the last end is its length."""

    block: bytes
    ends: Sequence[int]


def cut_pages(blocks: Iterable[bytes]) -> Iterator[Cut]:
    """Pages of `blocks`, each of which but the last is a multiple of a page long. The last page may be short."""
    for block in blocks:
        if block:
            ends = list(range(PAGE, len(block), PAGE))
            yield Cut(block, [*ends, len(block)])


def cut_by_content(blocks: Iterable[bytes]) -> Iterator[Cut]:
    carry = b""
    for block in gathered(blocks):
        content = carry + block
        ends = _ends(content)
        if ends:
            yield Cut(content[: ends[-1]], ends)
            carry = content[ends[-1] :]
        else:
            carry = content
    if carry:
        yield Cut(carry, [len(carry)])


def gathered(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks of at least `BLOCK` (the last may be shorter): many small files are one block."""
    waiting: list[bytes] = []
    size = 0
    for block in blocks:
        waiting.append(block)
        size += len(block)
        if size >= BLOCK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if size:
        yield b"".join(waiting)


def _ends(content: bytes) -> list[int]:
    """Where chunks end. What lies behind the last end is too short to say."""
    boundaries = _boundaries(content)
    ends: list[int] = []
    start = 0
    while len(content) - start > SMALLEST_CHUNK:
        found = bisect_left(boundaries, start + SMALLEST_CHUNK)
        end = boundaries[found] if found < len(boundaries) else len(content) + 1
        end = min(end, start + LARGEST_CHUNK)
        if end > len(content):
            break
        ends.append(end)
        start = end
    return ends


def _boundaries(content: bytes) -> list[int]:
    import numpy  # a tenth of the start of a worker, which cuts nothing

    mix, cut_below = numpy.uint32(_MIX), numpy.uint32(_CUT_BELOW)
    powers = [(width, numpy.uint32(power)) for width, power in _POWERS]
    found: list[int] = []
    hashes = numpy.empty(_HASHED_AT_ONCE, numpy.uint32)
    scratch = numpy.empty(_HASHED_AT_ONCE, numpy.uint32)
    for start in range(0, len(content), _HASHED_AT_ONCE - _WINDOW):
        piece = numpy.frombuffer(content[start : start + _HASHED_AT_ONCE], numpy.uint8)
        length = len(piece)
        hashes[:length] = piece
        # A polynomial over the last 16 bytes, by doubling: over 2, then 4, 8, 16.
        for width, power in powers:
            rest = max(length - width, 0)
            numpy.multiply(hashes[:rest], power, out=scratch[:rest])
            numpy.add(hashes[width:length], scratch[:rest], out=hashes[width:length])
        numpy.multiply(hashes[:length], mix, out=hashes[:length])
        # The first positions of a piece have no whole window: they were the last of the piece before.
        whole = _WINDOW if start else 0
        found += (numpy.flatnonzero(hashes[whole:length] < cut_below) + (start + whole + 1)).tolist()
    return found
