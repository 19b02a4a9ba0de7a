"""Packs: many chunks in one object; and the index of the chunks that one checkpoint stored. Pure: bytes in, bytes out.

A pack is a row of zstd frames of about 256 KiB, cut at chunk boundaries, so that a chunk can be read without the
rest. The index lies in an object of its own: for each pack its frames, for each frame its chunks, for each chunk its
length and digest. Whoever makes the next checkpoint reads the indexes of its lineage and no pack.

Invariant: a pack or an index that is not byte for byte what was stored is `broken` with its key, never decoded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import zstandard
from blake3 import blake3

from outlive.base import BrokenError
from outlive.machine.checkpoint.numbers import Reader, Writer

FRAME_BYTES = 256 * 1024
PACK_BYTES = 8 * 1024 * 1024  # before compression
DIGEST_BYTES = 16
LEVEL = 1  # memory is stored far more often than read back, and the machine stands still meanwhile
_SEALED_LIMIT = 1024 * 1024 * 1024  # of an index or manifest, opened


class Frame(NamedTuple):
    stored: int  # bytes in the pack
    length: int  # bytes of its chunks
    chunks: int


@dataclass(frozen=True, slots=True)
class PackIndex:
    frames: tuple[Frame, ...]
    lengths: Sequence[int]  # of its chunks
    digests: bytes  # of its chunks, one after the other

    @property
    def chunks(self) -> int:
        return len(self.lengths)

    def digest(self, chunk: int) -> bytes:
        return self.digests[chunk * DIGEST_BYTES : (chunk + 1) * DIGEST_BYTES]


class RawPack(NamedTuple):
    """Chunks that wait to be stored."""

    number: int
    chunks: list[bytes]
    digests: list[bytes]


@dataclass(frozen=True, slots=True)
class Pack:
    number: int
    content: bytes
    hash: str
    index: PackIndex


def digest_of(chunk: bytes) -> bytes:
    # 128 bits: chunks are only ever compared inside one lineage, so whoever could make two that collide (2^64 hashes)
    # spoils a checkpoint of his own, and the hash of the whole stream tells.
    return blake3(chunk).digest(length=DIGEST_BYTES)


def hash_of(content: bytes) -> str:
    return blake3(content).hexdigest()


def build_pack(raw: RawPack) -> Pack:
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
    stored: list[bytes] = []
    frames: list[Frame] = []
    waiting: list[bytes] = []
    size = 0
    for place, chunk in enumerate(raw.chunks, 1):
        waiting.append(chunk)
        size += len(chunk)
        if size >= FRAME_BYTES or place == len(raw.chunks):
            stored.append(compressor.compress(b"".join(waiting)))
            frames.append(Frame(len(stored[-1]), size, len(waiting)))
            waiting, size = [], 0
    content = b"".join(stored)
    index = PackIndex(tuple(frames), [len(chunk) for chunk in raw.chunks], b"".join(raw.digests))
    return Pack(raw.number, content, hash_of(content), index)


def open_frames(content: bytes, index: PackIndex, wanted: set[int], key: str) -> list[bytes]:
    """The chunks of each wanted frame; nothing for the others. The hash of `content` has been checked."""
    decompressor = zstandard.ZstdDecompressor()
    ends = list(accumulate(frame.stored for frame in index.frames))
    if not ends or ends[-1] != len(content):
        raise damaged(key, "its length is not what its index says")
    opened: list[bytes] = []
    for place, (frame, end) in enumerate(zip(index.frames, ends, strict=True)):
        if place not in wanted:
            opened.append(b"")
            continue
        try:
            found = decompressor.decompress(content[end - frame.stored : end], max_output_size=frame.length)
        except zstandard.ZstdError as error:
            raise damaged(key, "a frame cannot be decompressed") from error
        if len(found) != frame.length:
            raise damaged(key, "a frame has another length than its index says")
        opened.append(found)
    return opened


def check_hash(content: bytes, expected: str, key: str) -> None:
    if hash_of(content) != expected:
        raise damaged(key, "its hash is not the one that was recorded")


def damaged(key: str, why: str) -> BrokenError:
    return BrokenError("checkpoint.damaged", f"The object {key!r} is damaged: {why}.", object=key)


def seal(magic: bytes, content: bytes) -> bytes:
    """`content` compressed, with a name and a hash in front."""
    packed = zstandard.ZstdCompressor(level=9).compress(content)
    return magic + blake3(packed).digest() + packed


def unseal(magic: bytes, sealed: bytes, key: str) -> bytes:
    start = len(magic) + 32
    if not sealed.startswith(magic):
        raise damaged(key, "it is something else")
    packed = sealed[start:]
    if blake3(packed).digest() != sealed[len(magic) : start]:
        raise damaged(key, "its hash does not fit")
    try:
        if zstandard.frame_content_size(packed) > _SEALED_LIMIT:
            raise damaged(key, "it claims to be too long")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise damaged(key, "it cannot be decompressed") from error


INDEX_MAGIC = b"OLckidx1"


def encode_indexes(packs: Sequence[PackIndex]) -> bytes:
    writer = Writer()
    writer.number(len(packs))
    for pack in packs:
        writer.number(len(pack.frames))
        for frame in pack.frames:
            for number in frame:
                writer.number(number)
        for length in pack.lengths:
            writer.number(length)
        writer.content += pack.digests
    return seal(INDEX_MAGIC, bytes(writer.content))


def decode_indexes(content: bytes, key: str) -> list[PackIndex]:
    reader = Reader(unseal(INDEX_MAGIC, content, key), key)
    packs = [_read_pack(reader) for _ in range(reader.number())]
    if not reader.is_at_end:
        raise reader.damage("there is more than it should hold")
    return packs


def _read_pack(reader: Reader) -> PackIndex:
    frames = tuple(Frame(reader.number(), reader.number(), reader.number()) for _ in range(reader.number()))
    lengths = [reader.number() for _ in range(sum(frame.chunks for frame in frames))]
    if sum(lengths) != sum(frame.length for frame in frames):
        raise reader.damage("chunks and frames do not fit")
    return PackIndex(frames, lengths, reader.take(len(lengths) * DIGEST_BYTES))
