"""One attachment to a terminal: what it is sent, from its own position, and what comes from it.

Rule 1: every byte from its position on, once and in order; where bytes are gone it is told (`gap`, `seam`), and where
        the next one stands.
Rule 2: it waits for nobody and nobody waits for it. One that was level with the terminal and falls more than
        `BEHIND_LIMIT` behind is told its offset and left; one that comes from far back may take its time.
Rule 3: what is said beside the output is bounded: of many words of one kind the newest count.
"""

from collections import deque
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol

import anyio
import anyio.abc
import anyio.lowlevel

from outlive.base import OutliveError
from outlive.machine.caller import closing
from outlive.machine.node.terminals.contained import contain
from outlive.machine.node.terminals.tail import Tail
from outlive.machine.node.terminals.typed_ahead import TypedAhead
from outlive.machine.steady import send_at_once
from outlive.machine.terminal import frames
from outlive.machine.terminal.door import AttachTerminal, Present
from outlive.machine.terminal.frames import Channel, Frame, FrameDecoder
from outlive.machine.terminal.recording import Gap, Piece
from outlive.machine.terminal.status import Operator, Size, Terminal

BEHIND_LIMIT = 4 * 1024 * 1024
PIECE_LIMIT = 128 * 1024  # of output in one frame
SEND_WITHIN_S = 60.0  # one frame: then it is gone
_WORDS_LIMIT = 256
_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class Watched(Protocol):
    """A terminal, as one who watches it needs it."""

    @property
    def tail(self) -> Tail: ...
    @property
    def terminal(self) -> Terminal: ...
    @property
    def size(self) -> Size:
        """Of the screen that is drawn."""
        ...

    def history(self, offset: int) -> AsyncIterator[Piece | Gap]:
        """What was recorded from there on, up to now."""
        ...

    def draw(self) -> bytes: ...
    def moved(self) -> None:
        """Somebody was sent something."""
        ...

    def gone(self, observer: "Observer") -> None:
        """It has hung up, though something that it typed may still be on its way."""
        ...

    def is_level(self, observer: "Observer") -> None:
        """It has all there is."""
        ...

    async def type(self, operator: Operator, data: bytes) -> None:
        """In the operator's name, or refused by raising."""
        ...

    async def resize_by(self, observer: "Observer", size: Size) -> None: ...


class Observer:
    def __init__(self, watched: Watched, request: AttachTerminal, since: datetime) -> None:
        self._watched = watched
        self.operator = request.operator
        self.mode = request.mode
        self.client = request.client
        self.since = since
        self.size: Size | None = None  # that it would like
        self.is_live = False  # it was level with the terminal, and is not far behind
        self._opening: list[bytes] = []  # before all else
        self._prompt: deque[bytes] = deque(maxlen=_WORDS_LIMIT)  # as soon as possible
        self._placed: deque[tuple[int, bytes]] = deque(maxlen=_WORDS_LIMIT)  # when the output before it was sent
        self._last: tuple[Frame, ...] | None = None  # after all output, and then it is over
        self._is_over = False
        self._woken = anyio.Event()
        self.position = self._begin(request.offset)

    @property
    def present(self) -> Present:
        operator = self.operator
        return Present(
            operator=operator.id,
            name=operator.name,
            kind=operator.kind,
            mode=self.mode,
            since=self.since,
            client=self.client,
        )

    def _begin(self, offset: int | None) -> int:
        size, end = self._watched.size, self._watched.tail.end
        terminal = self._watched.terminal.model_copy(update={"cols": size.cols, "rows": size.rows})
        if offset is not None:
            self._opening.append(_status(frames.status_attached(terminal, offset)))
            # One who had all there was when the machine was rolled back has no gap to come across.
            self._opening += [_status(frames.status_seam(seam)) for seam in terminal.seams if seam.at == offset]
            return offset
        self._opening.append(_status(frames.status_attached(terminal, end, is_screen=True)))
        drawn = self._watched.draw()
        for at in range(0, len(drawn), PIECE_LIMIT):
            self._opening.append(frames.encode(Channel.OUTPUT, drawn[at : at + PIECE_LIMIT]))
        self._opening.append(_status(frames.status_offset(end)))
        return end

    # ── what it is told ──

    def wake(self) -> None:
        self._woken.set()

    def say(self, payload: bytes) -> None:
        """A status, as soon as it can be sent. Nothing follows the word that lets it go."""
        if self._is_over:
            return
        word = _status(payload)
        if not self._prompt or self._prompt[-1] != word:
            self._prompt.append(word)
        self.wake()

    def say_at(self, offset: int, payload: bytes) -> None:
        """A status that stands between two bytes of output."""
        word = (offset, _status(payload))
        if not self._placed or self._placed[-1] != word:
            self._placed.append(word)
        self.wake()

    def finish(self, *last: Frame) -> None:
        """The terminal is over: when all of its output was sent, these; then nothing."""
        self._last = last
        self.wake()

    def leave(self, *last: bytes) -> None:
        """Let it go now: it comes back with the offset that it has."""
        for payload in last:
            self._prompt.append(_status(payload))
        self._is_over = True
        self.wake()

    def leave_slow(self) -> None:
        self.is_live = False
        self.leave(frames.status_detached(self.position, "slow"))

    # ── the connection ──

    async def run(self, stream: anyio.abc.ByteStream) -> None:
        """Until one of the two has enough. The stream is not closed here. What goes wrong in it is its own end only."""
        await contain(f"an attachment of {self.operator.name!r}", lambda: self._carry(stream))

    async def _carry(self, stream: anyio.abc.ByteStream) -> None:
        async with anyio.create_task_group() as group:
            ahead = TypedAhead()
            group.start_soon(self._take_all, ahead, group.cancel_scope)
            group.start_soon(self._read, stream, ahead)
            try:
                await self._write(stream)
            except (TimeoutError, *_GONE):
                pass
            except OutliveError as error:  # of the recording: it is told, and may come again
                with anyio.move_on_after(SEND_WITHIN_S):
                    await self._send_last(stream, error)
            group.cancel_scope.cancel()

    async def _send_last(self, stream: anyio.abc.ByteStream, error: OutliveError) -> None:
        try:
            await stream.send(_status(frames.status_detached(self.position, error.code)))
        except _GONE:
            return

    async def _write(self, stream: anyio.abc.ByteStream) -> None:
        while True:
            self._woken = anyio.Event()
            if batch := self._gather():
                if rest := send_at_once(stream, batch):
                    with anyio.fail_after(SEND_WITHIN_S):
                        await stream.send(rest)
                self._watched.moved()
                await anyio.lowlevel.checkpoint()
            elif self._is_over:
                return
            elif self.position < self._watched.tail.start:
                await self._catch_up(stream)
            else:
                await self._woken.wait()

    def _gather(self) -> bytes:
        """What can be sent now, up to about one piece."""
        batch = [*self._opening, *self._prompt]
        self._opening.clear()
        self._prompt.clear()
        tail = self._watched.tail
        if not self._is_over and self.position >= tail.start:
            self.is_live = True
            batch += self._next_words()
            until = self._placed[0][0] if self._placed else tail.end
            if data := tail.read(self.position, min(PIECE_LIMIT, max(0, until - self.position))):
                self.position += len(data)
                batch.append(frames.encode(Channel.OUTPUT, data))
                batch += self._next_words()
            if self.position == tail.end:
                self._watched.is_level(self)
                if self._last is not None:
                    batch += [frames.encode(*frame) for frame in self._last]
                    self._is_over = True
        return batch[0] if len(batch) == 1 else b"".join(batch)

    def _next_words(self) -> list[bytes]:
        words = []
        while self._placed and self._placed[0][0] <= self.position:
            words.append(self._placed.popleft()[1])
        return words

    async def _catch_up(self, stream: anyio.abc.ByteStream) -> None:
        """From the recording, until it has what is in memory before it."""
        self.is_live = False
        begun = self.position
        async with closing(self._watched.history(self.position)) as pieces:
            async for piece in pieces:
                batch = self._take_up(piece)
                if batch:
                    with anyio.fail_after(SEND_WITHIN_S):
                        await stream.send(b"".join(batch))
                if self._is_over or self._prompt or self.position >= self._watched.tail.start:
                    return
        if self.position == begun and self.position < (start := self._watched.tail.start):
            self._prompt.extend(self._skip_to(start))

    def _take_up(self, piece: Piece | Gap) -> list[bytes]:
        if isinstance(piece, Gap):
            return self._skip_to(piece.end)
        batch = self._skip_to(piece.offset)
        data = piece.data[max(0, self.position - piece.offset) :]
        for at in range(0, len(data), PIECE_LIMIT):
            batch.append(frames.encode(Channel.OUTPUT, data[at : at + PIECE_LIMIT]))
        self.position += len(data)
        return batch

    def _skip_to(self, offset: int) -> list[bytes]:
        """Nothing is to be had between its position and there."""
        if offset <= self.position:
            return []
        seam = next((each for each in self._watched.terminal.seams if each.at == offset), None)
        told = frames.status_seam(seam) if seam is not None else frames.status_gap(self.position, offset)
        self.position = offset
        return [_status(told), _status(frames.status_offset(offset))]

    # ── what comes from it ──

    async def _read(self, stream: anyio.abc.ByteStream, ahead: TypedAhead) -> None:
        """Also while a program does not take what was typed: who hangs up is gone at once."""
        decoder = FrameDecoder()
        try:
            async for data in stream:
                await ahead.put(decoder.feed(data))
        except _GONE:
            pass
        except OutliveError as error:  # what came is no frame
            self.leave(frames.status_detached(self.position, error.code))
            return
        self._watched.gone(self)
        ahead.end()

    async def _take_all(self, ahead: TypedAhead, scope: anyio.CancelScope) -> None:
        """What was sent before it hung up counts."""
        try:
            while (came := await ahead.take()) is not None:
                for frame in came:
                    await self._take(frame)
        except OutliveError as error:  # nobody may send this
            self.leave(frames.status_detached(self.position, error.code))
            return
        scope.cancel()

    async def _take(self, frame: Frame) -> None:
        if frame.channel is Channel.INPUT:
            await self._type(frame.payload)
        elif frame.channel is Channel.RESIZE:
            self.size = frames.read_resize(frame.payload)
            await self._watched.resize_by(self, self.size)
        elif frame.channel is Channel.CLOSE:
            if frames.read_close(frame.payload) is Channel.INPUT:
                self.mode = "observe"
        else:
            raise frames.refuse(f"{frame.channel.name} does not come from a client")

    async def _type(self, data: bytes) -> None:
        if not data:
            return
        if self.mode == "observe":
            self.refuse("observe")
            return
        try:
            await self._watched.type(self.operator, data)
        except OutliveError as error:
            self.refuse(error.code)

    def refuse(self, code: str) -> None:
        """What it typed did not reach the machine."""
        self.say(frames.status_refused(self._watched.terminal.lease, code=code))


def _status(payload: bytes) -> bytes:
    return frames.encode(Channel.STATUS, payload)
