"""From a manifest back to files: pack by pack, each read once, checked, opened, and written where its bytes belong.

Invariant: what is written came out of objects with the recorded hashes; the whole is hashed once more before it gets
its name. A damaged or missing object is an error that names it.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import anyio

from outlive.base import BrokenError, NotFoundError
from outlive.machine.checkpoint.abreast import abreast
from outlive.machine.checkpoint.disk import in_thread
from outlive.machine.checkpoint.lineage import Piece, Shelf, pieces_of
from outlive.machine.checkpoint.manifest import Manifest
from outlive.machine.checkpoint.packs import PackIndex, check_hash, damaged, decode_indexes, open_frames
from outlive.storage.objects import ObjectStore

Sink = Callable[[int, memoryview], None]
"""Takes bytes that lie at an offset of a stream. Called in threads, in any order."""


@dataclass(frozen=True, slots=True)
class _Errand:
    """A pack to be read, and what of it goes where."""

    key: str
    index: PackIndex
    pieces: list[tuple[Piece, Sink]]


async def get_checked(objects: ObjectStore, key: str, size: int, expected: str) -> bytes:
    try:
        content = await objects.get(key)
    except NotFoundError as error:
        raise missing(key) from error
    if len(content) != size:
        raise damaged(key, f"it has {len(content)} bytes and not {size}")
    check_hash(content, expected, key)
    return content


def missing(key: str) -> BrokenError:
    return BrokenError("checkpoint.missing", f"The object {key!r} of a checkpoint is missing.", object=key)


async def read_indexes(
    objects: ObjectStore, manifest: Manifest, limiter: anyio.CapacityLimiter
) -> dict[int, list[PackIndex]]:
    """The index of each maker of whom something is in use."""
    found: dict[int, list[PackIndex]] = {}

    async def read(place: int) -> None:
        maker = manifest.makers[place]
        content = await get_checked(objects, maker.index_key, maker.index_size, maker.index_hash)
        found[place] = await in_thread(lambda: decode_indexes(content, maker.index_key), limiter)

    await abreast([place for place, maker in enumerate(manifest.makers) if maker.packs], read)
    return found


class Fetching:
    """The bytes of one manifest."""

    def __init__(
        self,
        objects: ObjectStore,
        manifest: Manifest,
        indexes: Mapping[int, list[PackIndex]],
        limiter: anyio.CapacityLimiter,
    ) -> None:
        self._objects = objects
        self._manifest = manifest
        self._recorded = manifest.objects()
        self._shelves = {place: Shelf(packs) for place, packs in indexes.items()}
        self._limiter = limiter

    async def streams(self, sinks: Mapping[str, Sink], told: Callable[[int], None]) -> None:
        """Write each named stream to its sink; zeros are not written. `told` hears of bytes that were written."""
        errands = await in_thread(lambda: self._errands(sinks), self._limiter)
        await abreast(errands, lambda errand: self._run(errand, told))

    def _errands(self, sinks: Mapping[str, Sink]) -> list[_Errand]:
        errands: dict[tuple[int, int], _Errand] = {}
        for name, sink in sinks.items():
            for piece in pieces_of(self._manifest, self._shelves, name):
                where = (piece.maker, piece.pack)
                if where not in errands:
                    key = self._manifest.makers[piece.maker].pack_key(piece.pack)
                    errands[where] = _Errand(key, self._shelves[piece.maker].packs[piece.pack], [])
                errands[where].pieces.append((piece, sink))
        return [errands[where] for where in sorted(errands)]

    async def _run(self, errand: _Errand, told: Callable[[int], None]) -> None:
        recorded = self._recorded.get(errand.key)
        if recorded is None:
            raise damaged(errand.key, "its manifest does not name it")
        content = await get_checked(self._objects, errand.key, *recorded)
        await in_thread(lambda: self._write(errand, content), self._limiter)
        told(sum(piece.length for piece, _ in errand.pieces))

    def _write(self, errand: _Errand, content: bytes) -> None:
        starts = [0, *accumulate(frame.length for frame in errand.index.frames)]
        wanted: dict[int, list[tuple[int, int, int, Sink]]] = {}
        for piece, sink in errand.pieces:
            begin, length = self._shelves[piece.maker].bytes_of(piece.pack, piece.first, piece.chunks)
            _split(starts, begin, length, piece.offset, sink, wanted)
        frames = open_frames(content, errand.index, set(wanted), errand.key)
        for frame, parts in wanted.items():
            opened = memoryview(frames[frame])
            for begin, end, offset, sink in parts:
                sink(offset, opened[begin:end])


def _split(
    starts: list[int],
    begin: int,
    length: int,
    offset: int,
    sink: Sink,
    wanted: dict[int, list[tuple[int, int, int, Sink]]],
) -> None:
    """Note which part of which frame holds these bytes of the opened pack, and where in the stream each belongs."""
    frame = bisect_right(starts, begin) - 1
    while length:
        inside = begin - starts[frame]
        part = min(length, starts[frame + 1] - begin)
        wanted.setdefault(frame, []).append((inside, inside + part, offset, sink))
        begin, length, offset, frame = begin + part, length - part, offset + part, frame + 1
