"""From streams to new chunks in packs and a layout for each stream. Pure: no file and no store is touched here.

Invariant: the streams, put together from the layouts, are what came in; a chunk that the lineage or this checkpoint
already has is not stored again, and zeros are not stored at all. At most one pack's chunks are held.
"""

from collections.abc import Iterable, Iterator

from blake3 import blake3

from outlive.machine.checkpoint.chunking import LARGEST_CHUNK, Cut
from outlive.machine.checkpoint.layout import LayoutWriter
from outlive.machine.checkpoint.lineage import Known, maker_and_number
from outlive.machine.checkpoint.manifest import Stream
from outlive.machine.checkpoint.packs import RawPack, digest_of

_BREATH = 32 * 1024 * 1024
_ZEROS = {length: bytes(length) for length in (4096, LARGEST_CHUNK)}


def _is_zero(chunk: bytes) -> bool:
    # Nearly all chunks are told by their first and last byte; the rest by one comparison.
    return not chunk[0] and not chunk[-1] and chunk == (_ZEROS.get(len(chunk)) or bytes(len(chunk)))


class Scanner:
    """Takes the streams of one checkpoint one after the other. Drain each scan before the next; `finish` at the end."""

    def __init__(self, known: Known, full_bytes: int) -> None:
        self._full_bytes = full_bytes
        self._known = known.chunks
        self._own: dict[bytes, int] = {}
        self._pack = RawPack(0, [], [])
        self._pack_bytes = 0
        self.streams: list[Stream] = []
        self.read_bytes = 0

    def scan(self, name: str, cuts: Iterable[Cut]) -> Iterator[RawPack | None]:
        """Read a stream; yields each pack that became full, and None after many bytes without one."""
        layout = LayoutWriter()
        hasher = blake3()
        length = quiet = 0
        for block, ends in cuts:
            hasher.update(block)
            length += len(block)
            self.read_bytes += len(block)
            start = 0
            for end in ends:
                self._take(block[start:end], layout)
                start = end
                if self._pack_bytes >= self._full_bytes:
                    yield self._full_pack()
                    quiet = 0
            quiet += len(block)
            if quiet >= _BREATH:  # so that a long read of known bytes shows progress, and can be cancelled
                quiet = 0
                yield None
        self.streams.append(Stream(name=name, length=length, hash=hasher.hexdigest(), layout=layout.finish()))

    def finish(self) -> Iterator[RawPack]:
        if self._pack.chunks:
            yield self._full_pack()

    def _take(self, chunk: bytes, layout: LayoutWriter) -> None:
        if _is_zero(chunk):
            layout.zeros(len(chunk))
            return
        digest = digest_of(chunk)
        place = self._known.get(digest)
        if place is not None:
            layout.chunk(*maker_and_number(place))
            return
        number = self._own.get(digest)
        if number is None:
            number = self._own[digest] = len(self._own)
            self._pack.chunks.append(chunk)
            self._pack.digests.append(digest)
            self._pack_bytes += len(chunk)
        layout.chunk(0, number)

    def _full_pack(self) -> RawPack:
        full = self._pack
        self._pack = RawPack(full.number + 1, [], [])
        self._pack_bytes = 0
        return full
