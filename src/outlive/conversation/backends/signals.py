"""How signals look on the wire, and what waits to go out.

A signal is a JSON array that begins with its letter: `e` an event, `d` a delta, `g` "the log reaches this seq". The
fields follow in the order of the tuples in `events.py`. An event whose payload is too big for the feed travels without
it (empty `data_json`): followers read it from the log, and everybody still hears what it ended.

The outbox is bounded and never makes a writer wait. Deltas of one attempt that have not left yet are merged. When it is
full, deltas are dropped and the events of a conversation shrink to one `Grown`.
"""

import re
from collections.abc import Sequence
from typing import Any

import orjson

from outlive.base import ConversationId, InvalidError
from outlive.conversation.blobs import INLINE_LIMIT
from outlive.conversation.events import Delta, Event
from outlive.conversation.feed import Grown, Signal

Heard = Event | Delta | Grown
"""A signal as it comes out of a transport."""

OUTBOX_LIMIT = 4 * 1024 * 1024
FRAME_LIMIT = 8 * 1024 * 1024
BODY_SIZE = 256 * 1024  # a body is closed when it has reached this; the longest delta may come on top
_MERGED_CHARACTERS = 64 * 1024  # a merged delta is closed when it has reached this

_OVERHEAD = 512
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_TEXT = (str, type(None))
_EVENT_TYPES = (int, str, _TEXT, _TEXT, (int, type(None)), str, int, str, str, str, _TEXT)
_DELTA_TYPES = (int, int, _TEXT, str, int, str, str, _TEXT, _TEXT, str, str)
_LIVE_TYPES = ("model.delta", "tool.output")


def encode_signals(signals: Sequence[Heard]) -> bytes:
    """One body: the JSON array of these signals."""
    rows = [_row(signal) for signal in signals]
    try:
        return orjson.dumps(rows)
    except TypeError:
        # Half a surrogate pair cannot be sent as UTF-8. Its replacement has the same length, so offsets stay right.
        return orjson.dumps([[_mend(field) for field in row] for row in rows])


def decode_signals(body: bytes) -> list[Heard]:
    """The signals of one body; `invalid` for anything else. What comes out has the types it claims to have."""
    return read_signals(parse(body))


def parse(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidError("feed.garbage", "This is not JSON.") from error


def read_signals(rows: object) -> list[Heard]:
    if not isinstance(rows, list):
        raise InvalidError("feed.garbage", "Signals are a list.")
    return [_signal(row) for row in rows]


def _row(signal: Heard) -> list[Any]:
    if isinstance(signal, Delta):
        return ["d", *signal]
    if isinstance(signal, Event):
        return ["e", *signal]
    return ["g", signal.head]


def _mend(field: Any) -> Any:
    return _LONE_SURROGATE.sub("\ufffd", field) if isinstance(field, str) else field


def _signal(row: object) -> Heard:
    if isinstance(row, list) and row:
        fields = row[1:]
        if row[0] == "d" and _has_types(fields, _DELTA_TYPES) and fields[5] in _LIVE_TYPES:
            return Delta._make(fields)
        if row[0] == "e" and _has_types(fields, _EVENT_TYPES):
            return Event._make(fields)
        if row[0] == "g" and len(fields) == 1 and isinstance(fields[0], int):
            return Grown(fields[0])
    raise InvalidError("feed.garbage", "This is not a signal.")


def _has_types(fields: list[Any], types: tuple[type | tuple[type, ...], ...]) -> bool:
    return len(fields) == len(types) and all(map(isinstance, fields, types))


class Frames:
    """Cuts a byte stream into frames: four bytes of length, then the body."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete with `data`; `invalid` for one that is too long."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        at = 0
        while len(buffer) - at >= 4:
            length = int.from_bytes(buffer[at : at + 4], "big")
            if length > FRAME_LIMIT:
                raise InvalidError("feed.garbage", f"A frame of {length} bytes is too long.")
            if len(buffer) - at - 4 < length:
                break
            bodies.append(bytes(buffer[at + 4 : at + 4 + length]))
            at += 4 + length
        if at:
            del buffer[:at]
        return bodies


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class _Merged:
    """A delta that has not left yet, and what was added to it."""

    __slots__ = ("end", "first", "texts")

    def __init__(self, first: Delta) -> None:
        self.first = first
        self.texts = [first.text]
        self.end = first.end

    def take_in(self, delta: Delta) -> bool:
        first = self.first
        if (
            delta.start != first.start
            or delta.offset != self.end
            or delta.type != first.type
            or delta.call != first.call
            or delta.stream != first.stream
            or self.end - first.offset >= _MERGED_CHARACTERS
        ):
            return False
        self.texts.append(delta.text)
        self.end += len(delta.text)
        return True

    def close(self) -> Delta:
        return self.first if len(self.texts) == 1 else self.first._replace(text="".join(self.texts))


class Outbox:
    """What this process has published and not sent yet, by conversation, in order."""

    def __init__(self, limit: int = OUTBOX_LIMIT) -> None:
        self._limit = limit
        self._waiting: dict[ConversationId, list[Event | Grown | _Merged]] = {}
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, conversation: ConversationId, signals: Sequence[Signal]) -> None:
        waiting = self._waiting.setdefault(conversation, [])
        for signal in signals:
            if isinstance(signal, Delta):
                last = waiting[-1] if waiting else None
                if isinstance(last, _Merged) and last.take_in(signal):
                    self.size += len(signal.text)
                    continue
                parts = list(map(_Merged, _split(signal)))
                waiting.extend(parts)
                self.size += sum(map(_size, parts))
            else:
                if signal.blob is not None or len(signal.data_json) > INLINE_LIMIT:
                    signal = signal._replace(data_json="")
                waiting.append(signal)
                self.size += _size(signal)
        if not waiting:
            del self._waiting[conversation]
        if self.size > self._limit:
            self._shrink()

    def take(self, size: int) -> list[tuple[ConversationId, bytes]]:
        """Encoded bodies of about `size` in all, to be sent in this order; they are no longer in the outbox."""
        taken: list[tuple[ConversationId, bytes]] = []
        total = 0
        while self._waiting and total < size:
            conversation = next(iter(self._waiting))
            waiting = self._waiting.pop(conversation)
            count = part = 0
            while count < len(waiting) and part < BODY_SIZE:
                part += _size(waiting[count])
                count += 1
            body = encode_signals([one.close() if isinstance(one, _Merged) else one for one in waiting[:count]])
            taken.append((conversation, body))
            self.size -= part
            total += len(body)
            if count < len(waiting):
                self._waiting[conversation] = waiting[count:]
        return taken

    def _shrink(self) -> None:
        """Keep of each conversation how far its log reaches: one number. If that is still too much, forget the oldest;
        followers look at the log by themselves from time to time."""
        heads = {
            conversation: max((_head(one) for one in waiting if not isinstance(one, _Merged)), default=0)
            for conversation, waiting in self._waiting.items()
        }
        kept = [(conversation, head) for conversation, head in heads.items() if head]
        kept = kept[-(self._limit // _OVERHEAD // 2) :]
        self._waiting = {conversation: [Grown(head)] for conversation, head in kept}
        self.size = _OVERHEAD * len(kept)


def _split(delta: Delta) -> list[Delta]:
    """A delta in parts that fit a frame."""
    if len(delta.text) <= _MERGED_CHARACTERS:
        return [delta]
    return [
        delta._replace(offset=delta.offset + at, text=delta.text[at : at + _MERGED_CHARACTERS])
        for at in range(0, len(delta.text), _MERGED_CHARACTERS)
    ]


def _head(signal: Event | Grown) -> int:
    return signal.seq if isinstance(signal, Event) else signal.head


def _size(waiting: Event | Grown | _Merged) -> int:
    if isinstance(waiting, _Merged):
        return waiting.end - waiting.first.offset + _OVERHEAD
    return len(waiting.data_json) + _OVERHEAD if isinstance(waiting, Event) else _OVERHEAD
