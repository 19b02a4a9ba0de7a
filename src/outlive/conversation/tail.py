"""What was streamed so far in the attempts that are open: kept for those who come late. Pure.

Rule 1: text of an attempt that is over is never retained: the event that seals it, the start of a newer attempt of its
        step, or the end of the turn drops it, and what a zombie streams afterwards is not taken in again.
Rule 2: everything is bounded: per attempt, per conversation and in all. The oldest goes first; offsets stay right.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Literal

from outlive.base import ConversationId, StepId, TurnId
from outlive.conversation.events import SEALS, TURN_ENDS, Delta, Event
from outlive.conversation.feed import RETAINED_CHARACTERS, Grown

RETAINED_PER_CONVERSATION = 4 * RETAINED_CHARACTERS
RETAINED_IN_ALL = 16 * 1024 * 1024  # characters: at most 64 MiB, since one takes up to four bytes

_ATTEMPT_COST = 512  # what an attempt counts for beside its text, so that a crowd of tiny ones is bounded too
_PIECE_COST = 256
_CHUNK = 4096
_SMALL_CHUNK = 1024  # a chunk below this is grown in place; so a million tiny deltas make few objects
_ENDED_LIMIT = 256


class _Piece:
    """Adjacent text of one type, call and stream."""

    __slots__ = ("actor", "at", "attempt", "call", "chunks", "offset", "start", "step", "stream", "turn", "type")

    def __init__(self, delta: Delta) -> None:
        self.start: int = delta.start
        self.offset: int = delta.offset
        self.turn: TurnId | None = delta.turn
        self.step: StepId = delta.step
        self.attempt: int = delta.attempt
        self.type: Literal["model.delta", "tool.output"] = delta.type
        self.call: str | None = delta.call
        self.stream: str | None = delta.stream
        self.at: str = delta.at
        self.actor: str = delta.actor
        self.chunks: deque[str] = deque()

    def is_continued_by(self, delta: Delta) -> bool:
        return self.type == delta.type and self.call == delta.call and self.stream == delta.stream

    def extend(self, text: str) -> None:
        chunks = self.chunks
        if chunks and len(chunks[-1]) < _SMALL_CHUNK and len(text) < _CHUNK:
            chunks[-1] += text
        else:
            chunks.extend(text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK))

    def cut(self, characters: int) -> int:
        """Drop up to `characters` from the front; returns how many were dropped."""
        dropped = 0
        while self.chunks and dropped < characters:
            first = self.chunks.popleft()
            if len(first) > characters - dropped:
                self.chunks.appendleft(first[characters - dropped :])
                dropped = characters
            else:
                dropped += len(first)
        self.offset += dropped
        return dropped

    def to_delta(self) -> Delta:
        return Delta(
            start=self.start,
            offset=self.offset,
            turn=self.turn,
            step=self.step,
            attempt=self.attempt,
            type=self.type,
            text="".join(self.chunks),
            call=self.call,
            stream=self.stream,
            at=self.at,
            actor=self.actor,
        )


class _Attempt:
    __slots__ = ("characters", "end", "pieces", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = 0
        self.characters = 0
        self.pieces: deque[_Piece] = deque()

    @property
    def size(self) -> int:
        return self.characters + _ATTEMPT_COST + _PIECE_COST * len(self.pieces)

    def extend(self, delta: Delta) -> None:
        if self.pieces and delta.offset < self.end:  # heard twice, in whole or in part
            if delta.end <= self.end:
                return
            delta = delta._replace(text=delta.text[self.end - delta.offset :], offset=self.end)
        last = self.pieces[-1] if self.pieces else None
        if last is None or delta.offset != self.end or not last.is_continued_by(delta):
            last = _Piece(delta)
            self.pieces.append(last)
        last.extend(delta.text)
        self.end = delta.end
        self.characters += len(delta.text)
        while self.characters + _PIECE_COST * len(self.pieces) > RETAINED_CHARACTERS + _PIECE_COST:
            first = self.pieces[0]
            excess = self.characters + _PIECE_COST * (len(self.pieces) - 1) - RETAINED_CHARACTERS
            self.characters -= first.cut(excess)
            if not first.chunks:
                self.pieces.popleft()


class Tail:
    """The live output of one conversation's open attempts: a fold of its signals, in the order they come."""

    __slots__ = ("_attempts", "_ended", "_floor", "size")

    def __init__(self) -> None:
        self._attempts: dict[StepId, _Attempt] = {}  # a step has one open attempt at most
        self._ended: OrderedDict[StepId, int] = OrderedDict()  # step -> seq that ended its attempts so far
        self._floor = 0  # attempts that started before this seq are over
        self.size = 0

    @property
    def is_empty(self) -> bool:
        return not self._attempts

    def fold(self, signals: Iterable[Event | Delta | Grown]) -> None:
        for signal in signals:
            if isinstance(signal, Delta):
                self._extend(signal)
            elif isinstance(signal, Event):
                self._hear(signal)
            else:
                # Events were left out on the way, so nobody knows which attempts they ended: keep none.
                self._end_turn(signal.head)

    def retained(self) -> list[Delta]:
        attempts = sorted(self._attempts.values(), key=lambda attempt: attempt.start)
        return [piece.to_delta() for attempt in attempts for piece in attempt.pieces]

    def _extend(self, delta: Delta) -> None:
        if not delta.text or delta.start < self._floor or delta.start < self._ended.get(delta.step, 0):
            return
        attempt = self._attempts.get(delta.step)
        if attempt is None or attempt.start < delta.start:
            self._drop(delta.step)
            attempt = self._attempts[delta.step] = _Attempt(delta.start)
        elif attempt.start > delta.start:
            return  # a zombie
        else:
            self.size -= attempt.size
        attempt.extend(delta)
        self.size += attempt.size
        while self.size > RETAINED_PER_CONVERSATION and len(self._attempts) > 1:
            self._drop(min(self._attempts, key=lambda step: self._attempts[step].start))

    def _hear(self, event: Event) -> None:
        if event.type in TURN_ENDS:
            self._end_turn(event.seq)
        elif event.step is not None and (event.type in SEALS or event.type == "step.started"):
            self._ended[event.step] = max(event.seq, self._ended.pop(event.step, 0))
            if len(self._ended) > _ENDED_LIMIT:
                self._ended.popitem(last=False)
            attempt = self._attempts.get(event.step)
            if attempt is not None and attempt.start < event.seq:
                self._drop(event.step)

    def _end_turn(self, seq: int) -> None:
        self._floor = max(self._floor, seq)
        for step in [step for step, attempt in self._attempts.items() if attempt.start < seq]:
            self._drop(step)
        self._ended = OrderedDict((step, at) for step, at in self._ended.items() if at > seq)

    def _drop(self, step: StepId) -> None:
        attempt = self._attempts.pop(step, None)
        if attempt is not None:
            self.size -= attempt.size


class Tails:
    """The tails of many conversations under one bound; the one that grew least recently is emptied first."""

    def __init__(self, limit: int = RETAINED_IN_ALL) -> None:
        self._limit = limit
        self._tails: OrderedDict[ConversationId, Tail] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._tails)

    def fold(self, conversation: ConversationId, signals: Iterable[Event | Delta | Grown], *, keep: bool) -> None:
        """Take signals in. `keep`: keep an empty tail too, since somebody follows (it remembers what is over)."""
        tail = self._tails.get(conversation)
        if tail is None:
            tail = self._tails[conversation] = Tail()
        before = tail.size
        tail.fold(signals)
        self.size += tail.size - before
        self._tails.move_to_end(conversation)
        if tail.is_empty and not keep:
            del self._tails[conversation]
        while self.size > self._limit and len(self._tails) > 1:
            self.size -= self._tails.popitem(last=False)[1].size

    def retained(self, conversation: ConversationId) -> list[Delta]:
        tail = self._tails.get(conversation)
        return tail.retained() if tail is not None else []

    def release(self, conversation: ConversationId) -> None:
        """Nobody follows any more: keep its tail only if something is open."""
        tail = self._tails.get(conversation)
        if tail is not None and tail.is_empty:
            del self._tails[conversation]

    def drop(self, conversation: ConversationId) -> None:
        tail = self._tails.pop(conversation, None)
        if tail is not None:
            self.size -= tail.size
