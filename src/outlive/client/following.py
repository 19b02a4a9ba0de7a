"""Following a conversation: everything after a position, each thing once, through cut connections and restarts.

The server says with every frame where the client stands; whatever ends a connection, the next one goes on from the
last frame that came whole. So nothing is kept on the server and nothing can expire.

Rule 1: what cannot heal (not known, not found, a position of another conversation) is raised. What can is waited out:
        `unavailable`, `deadline`, `exhausted`.
Rule 2: a thing is given out once, also if a server repeats itself (`Seen`).
"""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable

import anyio
import httpx

from outlive.base import BrokenError, OutliveError, UnavailableError
from outlive.client.sse import SseParser
from outlive.client.transport import Backoff, Params, Translated, Transport
from outlive.client.wire import Event, decode, event_of

SILENCE_S = 45.0  # the server speaks at least every 15 s; three times that, and the connection is dead
_HEALING = frozenset({"unavailable", "deadline", "exhausted"})

OnLost = Callable[[OutliveError, float], None]
"""Told when the connection is lost: why, and how long until the next attempt."""


class Seen:
    """Which of the things that come were there before."""

    def __init__(self) -> None:
        self._seq = 0
        self._offsets: dict[tuple[str | None, int | None], int] = {}

    def is_new(self, event: Event) -> bool:
        if event.seq is not None:
            if event.seq <= self._seq:
                return False
            self._seq = event.seq
            if event.type in ("turn.finished", "turn.interrupted"):
                self._offsets.clear()  # whatever was open is abandoned: nothing of it comes any more
            elif event.type in ("model.responded", "tool.finished", "compaction.finished"):
                self._offsets.pop((event.step, event.attempt), None)
            return True
        offset, text = event.data.get("offset"), event.data.get("text")
        if isinstance(offset, int) and isinstance(text, str):
            key = (event.step, event.attempt)
            if offset + len(text) <= self._offsets.get(key, 0):
                return False
            self._offsets[key] = offset + len(text)
        return True


class Following:
    """An async iterator over events. Ends only by an error, or when it is left."""

    def __init__(
        self,
        transport: Transport,
        conversation: str,
        after: str | None,
        *,
        deltas: bool = True,
        give_up_after_s: float | None = None,
        silence_s: float = SILENCE_S,
        on_lost: OnLost | None = None,
    ) -> None:
        self.position = after  # of the last event that was given out
        self._transport = transport
        self._conversation = conversation
        self._params: Params = {} if deltas else {"deltas": "false"}
        self._give_up_after_s = give_up_after_s
        self._silence_s = silence_s
        self._on_lost = on_lost
        self._received = after  # of the last frame that came whole
        self._ready: deque[Event] = deque()
        self._seen = Seen()
        self._backoff = Backoff()
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._parser = SseParser()
        self._lived_at = time.monotonic()

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            while True:
                yield await self.next_event()
        finally:
            with anyio.CancelScope(shield=True):
                await self.aclose()

    async def next_event(self) -> Event:
        while not self._ready:
            await self._receive()
        event = self._ready.popleft()
        self.position = event.position
        return event

    async def next_events(self) -> list[Event]:
        """All that is there, at least one."""
        events = [await self.next_event()]
        while self._ready:
            events.append(await self.next_event())
        return events

    async def aclose(self) -> None:
        """Leave. Following may be taken up again: it goes on where it was."""
        response, self._response, self._chunks = self._response, None, None
        if response is not None:
            await response.aclose()

    async def _receive(self) -> None:
        """Read one chunk, or connect anew; returns with or without something ready."""
        try:
            if self._chunks is None:
                await self._connect()
            assert self._chunks is not None
            with Translated(self._transport.url):
                chunk = await anext(self._chunks, None)
            if chunk is None:
                raise UnavailableError("stream.ended", "The server ended the stream.")
            self._lived_at = time.monotonic()
            self._take(chunk)
        except OutliveError as error:
            await self._wait_out(error)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise

    def _take(self, chunk: bytes) -> None:
        for frame in self._parser.feed(chunk):
            event = event_of(decode(frame.data), frame.id)
            if frame.id:
                self._received = frame.id
            self._backoff.reset()
            if self._seen.is_new(event):
                self._ready.append(event)

    async def _connect(self) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._received is not None:
            headers["Last-Event-ID"] = self._received
        path = f"/conversations/{self._conversation}/stream"
        response = await self._transport.open_stream(path, self._params, headers, self._silence_s)
        if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
            await response.aclose()
            raise BrokenError("stream.garbled", f"{self._transport.url} does not answer with a stream of events.")
        self._response, self._chunks, self._parser = response, response.aiter_raw(), SseParser()

    async def _wait_out(self, error: OutliveError) -> None:
        await self.aclose()
        if error.kind not in _HEALING:
            raise error
        wait_s = self._backoff.wait_s(error.retry_after_s)
        silent_s = time.monotonic() - self._lived_at
        if self._give_up_after_s is not None and silent_s + wait_s > self._give_up_after_s:
            raise error
        if self._on_lost is not None:
            self._on_lost(error, wait_s)
        await anyio.sleep(wait_s)
        self._transport.look_again()
