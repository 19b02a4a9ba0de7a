"""One connection with a guest: requests and their answers, streams, and its end.

The other end is hostile until shown otherwise. Rule 1: nothing comes that was not asked for; whatever does, ends the
connection. Rule 2: what waits here is bounded: requests and streams by number, their bytes by credit, what goes out by
size, and a guest that does not read is left after a deadline. Rule 3: when the connection ends everybody who waits for
it is told `machine.guest_away`, at once.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from outlive.base import DeadlineError, ExhaustedError, OutliveError, UnavailableError
from outlive.guest.wire import (
    PAYLOAD_LIMIT,
    REQUEST_LIMIT,
    STREAM_LIMIT,
    Decoder,
    Frame,
    Kind,
    WireError,
    Words,
    encode,
    encode_request,
    read_credit,
    read_words,
)
from outlive.machine.guest_link.answers import open_answer
from outlive.machine.guest_link.connection import Connection
from outlive.machine.guest_link.stream import GuestStream

CALL_S = 10.0  # for an answer, unless the caller says
WRITE_DEADLINE_S = 10.0  # a guest that takes nothing for so long is gone
_OUT_SIZE = 1024 * 1024
_OUT_LIMIT = 8 * 1024 * 1024  # with what could not wait (credit, resets)
_ID_LIMIT = 2**32 - 1

_Read = TypeVar("_Read")

_log = logging.getLogger(__name__)


def guest_away(why: str) -> UnavailableError:
    return UnavailableError("machine.guest_away", f"The machine's guest is away: {why}.")


class Asked:
    """A request under way. Its answer may be awaited by anybody, and comes once."""

    def __init__(self, identity: int, streams: tuple[GuestStream, ...]) -> None:
        self.id = identity
        self.streams = streams
        self._done = anyio.Event()
        self._outcome: Words | OutliveError | None = None

    @property
    def is_answered(self) -> bool:
        return self._outcome is not None

    def settle(self, outcome: Words | OutliveError) -> None:
        self._outcome = outcome
        self._done.set()

    async def answer(self) -> Words:
        await self._done.wait()
        if isinstance(self._outcome, OutliveError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class Channel:
    def __init__(self, connection: Connection, decoder: Decoder) -> None:
        self._connection = connection
        self._decoder = decoder
        self._asked: dict[int, Asked] = {}
        self._streams: dict[int, GuestStream] = {}
        self._last_id = 0
        self._out = bytearray()
        self._is_sending = False  # a piece that was taken out of it is not all on the wire
        self._has_out = anyio.Event()
        self._has_room = anyio.Event()
        self._gone = anyio.Event()
        self.away: UnavailableError | None = None

    # Life

    async def run(self) -> None:
        """Serve until the connection ends, which whoever made it closes. Never raises for what the guest does."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._read)
                await self._gone.wait()
                tasks.cancel_scope.cancel()
        finally:
            self.close("the connection was closed")

    def close(self, why: str) -> None:
        if self.away is not None:
            return
        self.away = error = guest_away(why)
        self._gone.set()
        self._has_room.set()
        self._out.clear()
        for asked in self._asked.values():
            asked.settle(error)
        for stream in list(self._streams.values()):
            stream.lose(error)
        self._asked.clear()
        self._streams.clear()

    async def wait_gone(self) -> None:
        await self._gone.wait()

    def accuse(self, error: WireError) -> UnavailableError:
        """The guest has broken the rules: end the connection."""
        if self.away is None:
            _log.warning("The connection of a guest was closed: %s.", error)
            self.close(f"it did not keep to the wire: {error}")
        return self.away or guest_away(str(error))

    def read(self, words: Words, read: Callable[[Words], _Read]) -> _Read:
        """Take an answer apart; a guest whose answers make no sense is left."""
        try:
            return read(words)
        except WireError as error:
            raise self.accuse(error) from error

    # Out

    @property
    def has_room(self) -> bool:
        return len(self._out) <= _OUT_SIZE

    async def wait_for_room(self) -> None:
        """While too much waits to go out. A guest that does not read is left after a deadline, so this ends."""
        while not self.has_room and self.away is None:
            if self._has_room.is_set():
                self._has_room = anyio.Event()
            await self._has_room.wait()
        if self.away is not None:
            raise self.away

    def send_now(self, frame: bytes) -> None:
        if self.away is not None:
            return
        if not self._out and not self._is_sending:
            # Nothing is before it: it goes at once, without a turn of the task that writes.
            frame = frame[self._try_to_send(frame) :]
        if frame and self.away is None:
            self._out += frame
            self._has_out.set()
            if len(self._out) > _OUT_LIMIT:
                self.close("it does not read")

    def _try_to_send(self, frame: bytes) -> int:
        try:
            return self._connection.send_now(frame)
        except OSError:
            self.close("the connection broke")
            return 0

    async def _write(self) -> None:
        while True:
            await self._has_out.wait()
            self._has_out = anyio.Event()
            while self._out:
                size = min(len(self._out), 4 * PAYLOAD_LIMIT)
                data = bytes(memoryview(self._out)[:size])
                del self._out[:size]
                self._has_room.set()
                self._is_sending = True
                try:
                    with anyio.fail_after(WRITE_DEADLINE_S):
                        await self._connection.send(data)
                except TimeoutError:
                    self.close(f"it did not read for {WRITE_DEADLINE_S:g} s")
                    return
                except OSError:
                    self.close("the connection broke")
                    return
                self._is_sending = False

    async def ask(self, verb: str, words: Words, streams: dict[str, GuestStream] | None = None) -> Asked:
        """Send a request. Its answer is awaited apart, so that several can be under way at once."""
        await self.wait_for_room()
        if len(self._asked) >= REQUEST_LIMIT:
            raise ExhaustedError("machine.guest_busy", f"{REQUEST_LIMIT} requests of this machine wait for an answer.")
        opened = streams or {}
        request: Words = {"do": verb, **words}
        if opened:
            request["streams"] = {name: stream.id for name, stream in opened.items()}
        asked = Asked(self._next_id(), tuple(opened.values()))
        try:
            frame = encode_request(asked.id, request)
        except WireError as error:
            raise ExhaustedError("machine.request_too_big", f"This is too much for a machine: {error}.") from error
        self._asked[asked.id] = asked
        self._streams.update((stream.id, stream) for stream in asked.streams)
        # Nothing may come between the table and the wire.
        self.send_now(frame)
        return asked

    def tell(self, verb: str, words: Words) -> None:
        """Ask, now, and drop the answer. For what is said again anyway: nothing is said to a guest that is busy."""
        if self.away is None and len(self._asked) < REQUEST_LIMIT:
            asked = Asked(self._next_id(), ())
            self._asked[asked.id] = asked
            self.send_now(encode_request(asked.id, {"do": verb, **words}))

    def withdraw(self, asked: Asked) -> None:
        """Nobody waits for the answer any more. It still comes, and is dropped then."""
        if asked.id in self._asked:
            self.send_now(encode(Kind.WITHDRAW, asked.id))

    @asynccontextmanager
    async def asking(
        self, verb: str, words: Words, streams: dict[str, GuestStream] | None = None
    ) -> AsyncIterator[Asked]:
        """Ask, and withdraw what is unanswered at the end."""
        asked = await self.ask(verb, words, streams)
        try:
            yield asked
        finally:
            if not asked.is_answered:
                self.withdraw(asked)

    async def call(self, verb: str, words: Words, timeout_s: float) -> Words:
        async with self.asking(verb, words) as asked:
            return await self.answer_of(asked, verb, timeout_s)

    async def answer_of(self, asked: Asked, verb: str, timeout_s: float) -> Words:
        try:
            with anyio.fail_after(timeout_s):
                return await asked.answer()
        except TimeoutError:
            message = f"The machine's guest did not answer {verb!r} within {timeout_s:g} s."
            raise DeadlineError("machine.guest_silent", message) from None

    def new_stream(self, *, is_reader: bool = False) -> GuestStream:
        """A stream to name in the next request. A reader sends nothing, and is over when the guest has ended it."""
        if self.away is not None:
            raise self.away
        if len(self._streams) >= STREAM_LIMIT:
            raise ExhaustedError("machine.guest_busy", f"{STREAM_LIMIT} streams of this machine are open.")
        return GuestStream(self._next_id(), self, is_reader=is_reader)

    def _next_id(self) -> int:
        self._last_id += 1
        if self._last_id > _ID_LIMIT:
            self.close("its ids are used up")
            raise self.away or guest_away("its ids are used up")
        return self._last_id

    # In

    async def _read(self) -> None:
        frames: list[Frame] = []
        try:
            while True:
                for frame in frames:
                    self._take(frame)
                data = await self._connection.receive()
                if not data:
                    self.close("it hung up")
                    return
                frames = self._decoder.feed(data)
        except WireError as error:
            self.accuse(error)
        except OSError:
            self.close("the connection broke")

    def _take(self, frame: Frame) -> None:
        if self.away is not None:
            return
        if frame.kind is Kind.ANSWER:
            self._take_answer(frame)
            return
        stream = self._streams.get(frame.id)
        if stream is None:
            raise WireError(f"a {frame.kind.name} that nobody asked for")
        match frame.kind:
            case Kind.DATA:
                stream.take_data(frame.payload)
            case Kind.CREDIT:
                stream.take_credit(read_credit(frame.payload))
            case Kind.END:
                stream.take_end(is_cut=False)
            case Kind.RESET:
                stream.take_end(is_cut=True)
            case Kind.DONE:
                stream.take_done()
                del self._streams[frame.id]
            case _:
                raise WireError(f"a {frame.kind.name} from a guest")

    def _take_answer(self, frame: Frame) -> None:
        asked = self._asked.get(frame.id)
        if asked is None:
            raise WireError("an answer that nobody asked for")
        outcome = open_answer(read_words(frame.payload))
        del self._asked[frame.id]
        if isinstance(outcome, OutliveError):
            for stream in asked.streams:
                self._streams.pop(stream.id, None)
                stream.lose(UnavailableError("machine.stream_closed", "The machine refused this stream."))
        asked.settle(outcome)
