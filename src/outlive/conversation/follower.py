"""What one follower is shown, and where it stands after each thing shown. Pure: signals in, frames out.

The frames other than deltas are a function of the log alone: every durable event once, in order, and one `Rewound`
before each `step.started` that retries a step the follower was shown. So a follower that was cut off and came back has
been shown exactly what one that never left was shown; only deltas may be missing, and the seal of their step mends it.

Rule 1: `event` takes the events of the log one after the other, without a gap. Whoever hears of a later one first
        (`is_ahead`) reads the log up to it.
Rule 2: a delta is shown only while its attempt is the open one of its step. So text of a dead attempt is never shown
        after the rewind, whatever a zombie still sends.
"""

from collections.abc import Iterable
from typing import NamedTuple

from outlive.base import ConversationId, StepId
from outlive.conversation.events import SEALS, TURN_ENDS, Delta, Event, Rewound
from outlive.conversation.feed import Grown
from outlive.conversation.log import OpenAttempt
from outlive.conversation.position import FORGOTTEN, Position, format_position, tag_of

WATCHED_LIMIT = 100  # attempts whose live output one follower is shown at once; a position has to hold them all


class Frame(NamedTuple):
    """One thing to show, and the position of whoever has seen it."""

    position: str
    body: Event | Delta | Rewound


class Follower:
    def __init__(
        self,
        conversation: ConversationId,
        position: Position,
        open_attempts: Iterable[OpenAttempt],
        *,
        deltas: bool = True,
    ) -> None:
        """Go on from `position`; `open_attempts` are those of the log right after `position.seq`."""
        self.seq = position.seq
        self._tag = tag_of(conversation)
        self._wants_deltas = deltas
        seen = dict(position.offsets)
        # Both by order of start: dicts keep it, since a later start always has a greater seq.
        self._offsets: dict[int, int] = {}
        self._starts: dict[StepId, int] = {}
        for attempt in sorted(open_attempts, key=lambda attempt: attempt.start):
            if seen.get(attempt.start) != FORGOTTEN:
                self._offsets[attempt.start] = seen.get(attempt.start, 0)
                self._starts[attempt.step] = attempt.start

    def is_ahead(self, signal: Event | Delta | Grown) -> bool:
        """Whether the log has to be read before `signal` can be shown."""
        # One of these for every frame of every follower: plain comparisons, cheapest first.
        if isinstance(signal, Event):
            return signal.seq > self.seq + 1
        if isinstance(signal, Delta):
            return signal.start > self.seq
        return signal.head > self.seq

    def event(self, event: Event) -> list[Frame]:
        """What to show of the next event of the log; nothing if it was shown before."""
        if event.seq <= self.seq:
            return []
        assert event.seq == self.seq + 1, "a follower takes the log without a gap"
        frames: list[Frame] = []
        type = event.type
        if type == "step.started":
            frames.extend(self._restart(event))
        elif type in SEALS:
            self._forget(event.step)
        elif type in TURN_ENDS or type == "conversation.created":
            # A fork begins with `conversation.created`: what its parent left open is not going on here.
            self._offsets.clear()
            self._starts.clear()
        self.seq = event.seq
        frames.append(Frame(self.position(), event))
        return frames

    def delta(self, delta: Delta) -> Frame | None:
        """What to show of a delta: what of it is new, if its attempt is open."""
        seen = self._offsets.get(delta.start)
        if seen is None or delta.end <= seen or not self._wants_deltas:
            return None
        if seen == 0 and sum(map(bool, self._offsets.values())) >= WATCHED_LIMIT:
            return None
        if delta.offset < seen:
            delta = delta._replace(offset=seen, text=delta.text[seen - delta.offset :])
        self._offsets[delta.start] = delta.end
        return Frame(self.position(), delta)

    def position(self) -> str:
        return self._format(self._offsets) if self._offsets else format_position(self._tag, Position(self.seq))

    def _format(self, offsets: dict[int, int]) -> str:
        seen = tuple((start, offset) for start, offset in offsets.items() if offset)
        return format_position(self._tag, Position(self.seq, seen))

    def _restart(self, event: Event) -> Iterable[Frame]:
        assert event.step is not None
        assert event.attempt is not None
        older = self._starts.pop(event.step, None)
        if older is not None:
            yield Frame(
                self._format(self._offsets | {older: FORGOTTEN}),
                Rewound(event.turn, event.step, event.attempt, event.at, event.actor),
            )
            del self._offsets[older]
        self._starts[event.step] = event.seq
        self._offsets[event.seq] = 0

    def _forget(self, step: StepId | None) -> None:
        start = self._starts.pop(step, None) if step is not None else None
        if start is not None:
            del self._offsets[start]
