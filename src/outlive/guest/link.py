"""The guest's end of the one connection to its host: dials, greets, takes requests, carries streams, dials again.

Rule 1: away is normal. A node restarts, a machine is checkpointed and wakes elsewhere: every request and stream of the
old connection is dropped, what they were about is not, and the host asks again.
Rule 2: connected and idle it costs nothing: no timer runs.
"""

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from outlive.guest.complaints import complain
from outlive.guest.loop import Loop
from outlive.guest.refusal import RefusalError, refusal_of
from outlive.guest.stream import Stream
from outlive.guest.wire import (
    PAYLOAD_LIMIT,
    REQUEST_LIMIT,
    STREAM_LIMIT,
    WORDS_LIMIT,
    Decoder,
    Frame,
    Kind,
    WireError,
    Words,
    encode_words,
    read_credit,
    read_words,
)

_EAGER_S, _EAGER_STEP_S, _PATIENT_STEP_S = 3.0, 0.01, 0.2
_OUTBOX_SIZE = 512 * 1024
_READ_SIZE = 256 * 1024
_READS_AT_ONCE = 4


class Ask:
    """One request of the host: answered once, now or later."""

    def __init__(self, link: "Link", identity: int, words: Words, streams: dict[str, Stream]) -> None:
        self._link = link
        self.id = identity
        self.words = words
        self.streams = streams
        self.is_open = True
        self.on_withdrawn: Callable[[], None] | None = None  # also when the connection is gone

    def answer(self, words: Words) -> None:
        if self.is_open:
            self.is_open = False
            self._link.answer(self.id, {"ok": words})

    def refuse(self, refusal: RefusalError) -> None:
        """Not done: the streams named in the request never came to be."""
        if self.is_open:
            self.is_open = False
            for stream in self.streams.values():
                self._link.release(stream)
                stream.lose()
            error = {"kind": refusal.kind, "code": refusal.code, "message": refusal.message[:1000]}
            self._link.answer(self.id, {"error": error})

    def withdraw(self) -> None:
        if self.is_open:
            if self.on_withdrawn is not None:
                self.on_withdrawn()
            self.refuse(RefusalError("conflict", "withdrawn", "The request was withdrawn."))


class Host(Protocol):
    """What the link needs of the rest of the guest."""

    def hello(self) -> Words: ...
    def welcome(self, words: Words) -> None: ...
    def take(self, ask: Ask) -> None: ...


class Link:
    def __init__(self, loop: Loop, path: str, host: Host) -> None:
        self._loop = loop
        self._path = path
        self._host = host
        self._socket: socket.socket | None = None
        self._decoder = Decoder()
        self._part = bytearray()
        self._is_welcome = False
        self._out: deque[bytes] = deque()
        self._out_size = 0
        self._is_flush_due = False
        self._asks: dict[int, Ask] = {}
        self._streams: dict[int, Stream] = {}
        self._blocked = False
        self._away_since = 0.0

    # Coming and going

    def dial(self) -> None:
        """Connect, now and from now on."""
        self._loop.is_away = True
        self._away_since = self._loop.now()
        self._try()

    def _try(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if connection.connect_ex(self._path):
            connection.close()
            is_eager = self._loop.now() - self._away_since < _EAGER_S
            self._loop.after(_EAGER_STEP_S if is_eager else _PATIENT_STEP_S, self._try)
            return
        self._socket = connection
        self._decoder = Decoder()
        self._part.clear()
        self._loop.watch(connection.fileno(), read=self._read)
        self.write(encode_words(Kind.HELLO, 0, self._host.hello()))

    def close(self) -> None:
        """Drop the connection and what depended on it. Whoever calls says when to dial again."""
        if self._socket is None:
            return
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        self._socket = None
        self._is_welcome = False
        self._out.clear()
        self._out_size = 0
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.lose()
        asks, self._asks = self._asks, {}
        for ask in asks.values():
            ask.withdraw()

    def _lose(self) -> None:
        if self._socket is not None:
            was_welcome = self._is_welcome
            self.close()
            self._loop.is_away = True
            if was_welcome:
                self._away_since = self._loop.now()
            # Refused at the door: not at once again.
            self._loop.after(_EAGER_STEP_S if was_welcome else _PATIENT_STEP_S, self._try)

    def close_after_answers(self) -> None:
        """Write out what waits, bounded, then close: the answer to `quiesce` is the last thing said."""
        if self._socket is not None:
            self._socket.setblocking(True)
            self._socket.settimeout(1.0)
            with suppress(OSError):
                self._socket.sendall(b"".join(self._out))
        self.close()

    # Out

    def room(self) -> int:
        room = max(0, _OUTBOX_SIZE - self._out_size)
        if room < PAYLOAD_LIMIT:
            self._blocked = True
        return room

    def write(self, data: bytes) -> None:
        if self._socket is None:
            return
        self._out.append(data)
        self._out_size += len(data)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.soon(self._flush)

    def answer(self, identity: int, words: Words) -> None:
        if self._asks.pop(identity, None) is not None:
            self.write(encode_words(Kind.ANSWER, identity, words))

    def _flush(self) -> None:
        self._is_flush_due = False
        connection = self._socket
        if connection is None:
            return
        while self._out:
            data = b"".join(self._out)
            self._out.clear()
            try:
                sent = connection.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._lose()
                return
            self._out_size -= sent
            if sent < len(data):
                self._out.append(data[sent:])
                break
        self._loop.watch(connection.fileno(), read=self._read, write=self._flush if self._out else None)
        if self._blocked and self._out_size < _OUTBOX_SIZE // 2:
            self._blocked = False
            self._offer_room()

    def _offer_room(self) -> None:
        for identity in list(self._streams):
            stream = self._streams.pop(identity, None)
            if stream is not None:
                self._streams[identity] = stream  # to the end of the line: the next round begins with another
                stream.on_room()
                if self._blocked:
                    return

    # In

    def _read(self) -> None:
        for _ in range(_READS_AT_ONCE):
            connection = self._socket
            if connection is None:
                return
            try:
                data = connection.recv(_READ_SIZE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose()
                return
            try:
                for frame in self._decoder.feed(data):
                    if self._socket is connection:
                        self._take(frame)
            except WireError as error:
                complain(f"the host does not speak the wire: {error}")
                self._lose()
                return
            if len(data) < _READ_SIZE:
                return

    def _take(self, frame: Frame) -> None:
        if not self._is_welcome:
            if frame.kind is not Kind.WELCOME:
                raise WireError("the first frame must be WELCOME")
            self._host.welcome(read_words(frame.payload))
            self._is_welcome = True
            self._loop.is_away = False
            return
        match frame.kind:
            case Kind.PART:
                self._part += frame.payload
                if len(self._part) > WORDS_LIMIT:
                    raise WireError("a request too long")
            case Kind.REQUEST:
                self._take_request(frame)
            case Kind.WITHDRAW:
                if (ask := self._asks.get(frame.id)) is not None:
                    ask.withdraw()
            case Kind.DATA | Kind.CREDIT | Kind.END | Kind.RESET:
                # Words that crossed our DONE on the way are no fault of the host.
                if (stream := self._streams.get(frame.id)) is not None:
                    _pass_on(stream, frame)
            case _:
                raise WireError(f"a {frame.kind.name} from the host")

    def _take_request(self, frame: Frame) -> None:
        if frame.id in self._asks or len(self._asks) >= REQUEST_LIMIT:
            raise WireError("a request too many")
        words = read_words(bytes(self._part) + frame.payload)
        self._part.clear()
        ask = Ask(self, frame.id, words, self._open(words))
        self._asks[frame.id] = ask
        try:
            self._host.take(ask)
        except RefusalError as refusal:
            ask.refuse(refusal)
        except OSError as error:
            ask.refuse(refusal_of(error))

    def _open(self, words: Words) -> dict[str, Stream]:
        names = words.get("streams", {})
        if not isinstance(names, dict):
            raise WireError("the streams of a request are a table")
        opened: dict[str, Stream] = {}
        for name, identity in names.items():
            if not isinstance(identity, int) or identity in self._streams or len(self._streams) >= STREAM_LIMIT:
                raise WireError("a stream too many")
            opened[name] = self._streams[identity] = Stream(identity, self)
        return opened

    def release(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)


def _pass_on(stream: Stream, frame: Frame) -> None:
    match frame.kind:
        case Kind.DATA:
            stream.take_data(frame.payload)
        case Kind.CREDIT:
            stream.take_credit(read_credit(frame.payload))
        case Kind.END:
            stream.take_end()
        case _:
            stream.take_reset()
