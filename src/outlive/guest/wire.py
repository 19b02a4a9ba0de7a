"""The wire between a guest and its host: frames, and nothing that reads or writes a socket.

A frame is a header (length of the payload, kind, id) and a payload of at most `PAYLOAD_LIMIT` bytes. The guest says
HELLO, the host WELCOME; from then on the host asks (REQUEST, answered by one ANSWER with the same id) and may WITHDRAW
what it asked (the ANSWER still comes). A request that is longer than a frame begins with PARTs. Bytes flow in streams,
which only the host opens: by naming their ids in a request (`"streams"`). What may be said on one is in `flow.py`.

Invariant: however the bytes are cut, the same frames come out, and anything else is a `WireError` at once: no frame is
ever collected that is longer than the limit.
"""

import enum
import json
import struct
from typing import NamedTuple

VERSION = 1
PAYLOAD_LIMIT = 64 * 1024
WORDS_LIMIT = 1024 * 1024  # of a request, in PARTs
STREAM_LIMIT = 512  # open at the same time
REQUEST_LIMIT = 1024  # unanswered at the same time
_HEADER = struct.Struct("!IBI")
HEADER_SIZE = _HEADER.size
_CREDIT = struct.Struct("!I")

Words = dict[str, object]


class WireError(Exception):
    """The other end does not speak the wire. There is no way on but to close the connection."""


class Kind(enum.IntEnum):
    HELLO = 1
    WELCOME = 2
    REQUEST = 3
    ANSWER = 4
    WITHDRAW = 5
    DATA = 6
    CREDIT = 7
    END = 8  # I send no more
    RESET = 9  # I send no more, and want no more
    DONE = 10  # from the guest: both ends are through, the id is free
    PART = 11  # from the host: the beginning of a REQUEST that is too long for one frame


_KINDS = {int(kind): kind for kind in Kind}
_EMPTY = {Kind.WITHDRAW, Kind.END, Kind.DONE}


class Frame(NamedTuple):
    kind: Kind
    id: int
    payload: bytes


class Decoder:
    """Bytes in, frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        at = 0
        while len(buffer) - at >= HEADER_SIZE:
            length, number, identity = _HEADER.unpack_from(buffer, at)
            kind = _KINDS.get(number)
            if kind is None:
                raise WireError(f"there is no frame of kind {number}")
            if length > PAYLOAD_LIMIT:
                raise WireError(f"a frame of {length} bytes is too long")
            if length and kind in _EMPTY:
                raise WireError(f"a {kind.name} carries nothing")
            end = at + HEADER_SIZE + length
            if len(buffer) < end:
                break
            frames.append(Frame(kind, identity, bytes(buffer[at + HEADER_SIZE : end])))
            at = end
        if at:
            del buffer[:at]
        return frames


def encode(kind: Kind, identity: int, payload: bytes = b"") -> bytes:
    if len(payload) > PAYLOAD_LIMIT:
        raise WireError(f"a frame of {len(payload)} bytes is too long")
    return _HEADER.pack(len(payload), kind, identity) + payload


def encode_words(kind: Kind, identity: int, words: Words) -> bytes:
    """A frame that carries JSON. Names of files may hold any byte: they travel as lone surrogates (`os.fsdecode`)."""
    return encode(kind, identity, json.dumps(words, separators=(",", ":"), allow_nan=False).encode("ascii"))


def encode_request(identity: int, words: Words) -> bytes:
    """A REQUEST, with as many PARTs before it as it needs. They are written one after the other."""
    payload = json.dumps(words, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(payload) > WORDS_LIMIT:
        raise WireError(f"a request of {len(payload)} bytes is too long")
    cuts = range(0, len(payload), PAYLOAD_LIMIT)
    kinds = [Kind.PART] * (len(cuts) - 1) + [Kind.REQUEST]
    parts = [encode(kind, identity, payload[at : at + PAYLOAD_LIMIT]) for kind, at in zip(kinds, cuts, strict=True)]
    return b"".join(parts)


def read_words(payload: bytes) -> Words:
    try:
        words = json.loads(payload, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise WireError("this is not JSON") from error
    if not isinstance(words, dict):
        raise WireError("this is not a JSON object")
    return words


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def encode_credit(identity: int, size: int) -> bytes:
    return encode(Kind.CREDIT, identity, _CREDIT.pack(size))


def read_credit(payload: bytes) -> int:
    if len(payload) != _CREDIT.size:
        raise WireError("a CREDIT carries four bytes")
    size = int(_CREDIT.unpack(payload)[0])
    if size == 0:
        raise WireError("a CREDIT of nothing")
    return size
