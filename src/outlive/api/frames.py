"""Frames of a stream as bytes: encoded once, however many follow.

`id:` is the position to resume from, `event:` the type, `data:` the envelope. No part of a frame can hold a line break:
all text in it is JSON, where they are escapes.
"""

from collections import deque
from collections.abc import Iterable
from datetime import datetime

from outlive.api.envelope import delta_json, event_json, rewound_json
from outlive.api.metrics import Metrics
from outlive.base import Clock, ConversationId
from outlive.conversation.events import Delta, Event
from outlive.conversation.follower import Frame

CACHED_FRAMES = 4_096
CACHED_BYTES = 16 * 1024 * 1024

_Key = tuple[ConversationId, str, int, int]


class FrameCache:
    """What was encoded for one follower, for the next that wants the same. Bounded; the oldest goes first."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._frames: dict[_Key, bytes] = {}
        self._order: deque[_Key] = deque()
        self._size = 0

    def encode(self, conversation: ConversationId, frames: Iterable[Frame], since: str) -> bytes:
        """One chunk with all of `frames`. What was made after `since` counts as live, and its lag is measured."""
        chunks = []
        known = self._frames
        for frame in frames:
            # A position alone is not enough: two followers may come to the same one by different frames.
            position, body = frame
            if isinstance(body, Event):
                key = (conversation, position, 0, 0)
            elif isinstance(body, Delta):
                key = (conversation, position, body.start, body.offset)
            else:
                key = (conversation, position, -1, 0)
            chunk = known.get(key)
            if chunk is None:
                chunk = encode_frame(conversation, frame)
                self._keep(key, chunk)
                if body.at > since:
                    self._measure(body.at)
            chunks.append(chunk)
        return b"".join(chunks)

    def _keep(self, key: _Key, chunk: bytes) -> None:
        self._frames[key] = chunk
        self._order.append(key)
        self._size += len(chunk)
        while len(self._order) > CACHED_FRAMES or self._size > CACHED_BYTES:
            self._size -= len(self._frames.pop(self._order.popleft()))

    def _measure(self, at: str) -> None:
        lag = self._clock.now() - datetime.fromisoformat(at)
        self._metrics.lag.observe(max(0.0, lag.total_seconds()))


def encode_frame(conversation: ConversationId, frame: Frame) -> bytes:
    position, body = frame
    if isinstance(body, Event):
        type, data = body.type, event_json(conversation, body, position)
    elif isinstance(body, Delta):
        type, data = body.type, delta_json(conversation, body, position)
    else:
        type, data = "step.rewound", rewound_json(conversation, body, position)
    return f"id: {position}\nevent: {type}\ndata: {data}\n\n".encode()
