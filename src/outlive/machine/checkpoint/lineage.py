"""Which chunks of the lineage a new checkpoint may refer to. Pure.

Invariant 1: a checkpoint refers to its own packs and to packs that its parent refers to, and to nothing else. The
parent is kept while the child is made, so what it refers to is kept too: no index of all chunks is needed, and there
is no race with the sweep (`sweeping.py` has the argument).
Invariant 2: a pack of which little is in use is not referred to again: what is still wanted of it is stored anew. So
a long lineage needs a bounded multiple of the bytes it shows, and a bounded number of makers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from outlive.machine.checkpoint.layout import Run, read_layout
from outlive.machine.checkpoint.manifest import Maker, Manifest, manifest_key
from outlive.machine.checkpoint.packs import PackIndex, damaged

LEAST_USE = 0.4  # of a pack's bytes, for a child to refer to it
MOST_ANCESTORS = 32

Indexes = Mapping[int, Sequence[PackIndex]]
"""The index of each maker, by its place in the manifest."""


class Piece(NamedTuple):
    """Consecutive chunks of one run that lie in one pack."""

    maker: int
    pack: int
    first: int  # chunk, counted in its pack
    chunks: int
    offset: int  # in the stream
    length: int


class Shelf:
    """Where the chunks of one maker lie: from their number to pack and bytes."""

    def __init__(self, packs: Sequence[PackIndex]) -> None:
        self.packs = packs
        self._starts = [0, *accumulate(pack.chunks for pack in packs)]
        self._offsets = [[0, *accumulate(pack.lengths)] for pack in packs]
        self._at = 0  # runs mostly come in order, so the pack of the last one is tried first

    def find(self, number: int) -> tuple[int, int] | None:
        """Pack, and chunk in it."""
        if not 0 <= number < self._starts[-1]:
            return None
        while number < self._starts[self._at]:
            self._at -= 1
        while number >= self._starts[self._at + 1]:
            self._at += 1
        return self._at, number - self._starts[self._at]

    def bytes_of(self, pack: int, first: int, count: int) -> tuple[int, int]:
        """Where these chunks begin in the opened pack, and how long they are together."""
        offsets = self._offsets[pack]
        return offsets[first], offsets[first + count] - offsets[first]


def pieces_of(manifest: Manifest, shelves: Mapping[int, Shelf], stream: str) -> list[Piece]:
    """All of a stream but its zeros, which need no bytes."""
    found = manifest.stream(stream)
    key = manifest_key(manifest.id)
    pieces: list[Piece] = []
    offset = 0
    for run in read_layout(found.layout, key):
        if not isinstance(run, Run):
            offset += run.length
            continue
        number, left = run.first, run.chunks
        while left:
            place = shelves[run.maker].find(number) if run.maker in shelves else None
            if place is None:
                raise damaged(key, "it refers to a chunk that no index has")
            pack, first = place
            count = min(left, shelves[run.maker].packs[pack].chunks - first)
            _, length = shelves[run.maker].bytes_of(pack, first, count)
            pieces.append(Piece(run.maker, pack, first, count, offset, length))
            offset, number, left = offset + length, number + count, left - count
    if offset != found.length:
        raise damaged(key, f"the stream {stream!r} has another length than it says")
    return pieces


_NUMBER_BITS = 40


def place_of(maker: int, number: int) -> int:
    """A chunk's maker and number in one int: there are hundreds of thousands, and an int is a third of a tuple."""
    return maker << _NUMBER_BITS | number


def maker_and_number(place: int) -> tuple[int, int]:
    return place >> _NUMBER_BITS, place & ((1 << _NUMBER_BITS) - 1)


class Known(NamedTuple):
    """What a new checkpoint may refer to. Makers count from 1, for in its manifest the first is the new one itself."""

    makers: tuple[Maker, ...]
    shelves: Mapping[int, Shelf]
    chunks: Mapping[bytes, int]  # digest -> place


NOTHING_KNOWN = Known((), {}, {})


def known_of(parent: Manifest, indexes: Indexes) -> Known:
    usable = _usable(parent, indexes)
    makers: list[Maker] = []
    shelves: dict[int, Shelf] = {}
    chunks: dict[bytes, int] = {}
    for old_place, maker in enumerate(parent.makers):
        packs = tuple(pack for pack in maker.packs if (old_place, pack.number) in usable)
        if not packs:
            continue
        makers.append(maker.model_copy(update={"packs": packs}))
        shelves[len(makers)] = Shelf(indexes[old_place])
        numbers = {pack.number for pack in packs}
        start = place_of(len(makers), 0)
        for number, index in enumerate(indexes[old_place]):
            if number in numbers:
                chunks.update((index.digest(i), start + i) for i in range(index.chunks))
            start += index.chunks
    return Known(tuple(makers), shelves, chunks)


def _usable(parent: Manifest, indexes: Indexes) -> set[tuple[int, int]]:
    """The packs (place of the maker, number) that are worth being referred to."""
    shelves = {place: Shelf(packs) for place, packs in indexes.items()}
    used: Counter[tuple[int, int]] = Counter()
    seen: set[tuple[int, int, int, int]] = set()
    for stream in parent.streams:
        for piece in pieces_of(parent, shelves, stream.name):
            where = (piece.maker, piece.pack, piece.first, piece.chunks)
            if where not in seen:  # the same run of chunks a thousand times is one use
                seen.add(where)
                used[piece.maker, piece.pack] += piece.length
    worth = {pack for pack, count in used.items() if count >= LEAST_USE * sum(indexes[pack[0]][pack[1]].lengths)}
    by_maker: Counter[int] = Counter()
    for pack in worth:
        by_maker[pack[0]] += used[pack]
    kept = {maker for maker, _ in by_maker.most_common(MOST_ANCESTORS)}
    return {pack for pack in worth if pack[0] in kept}


def only_used(known: Known, layouts: Iterable[bytes]) -> tuple[Maker, ...]:
    """The ancestors with those packs that `layouts` refer to. All keep their place, also those without any."""
    used: set[tuple[int, int]] = set()
    for layout in layouts:
        for run in read_layout(layout, "a new layout"):
            if isinstance(run, Run) and run.maker:
                shelf = known.shelves[run.maker]
                first, last = shelf.find(run.first), shelf.find(run.first + run.chunks - 1)
                assert first is not None
                assert last is not None
                used.update((run.maker, pack) for pack in range(first[0], last[0] + 1))
    return tuple(
        maker.model_copy(update={"packs": tuple(pack for pack in maker.packs if (place, pack.number) in used)})
        for place, maker in enumerate(known.makers, 1)
    )
