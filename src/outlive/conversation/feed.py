"""The feed: how followers hear of new events and deltas at once. Ports and the plain values that pass through.

Rule 1: the feed is a hint, the log is the truth. A signal may be lost, doubled or late and no follower is wrong for it:
        a durable event that was not heard of is read from the log, and a delta may be missing.
Rule 2: publishing never waits for a follower and never fails a writer.
Rule 3: everything here is bounded. A follower that does not keep up is told so (`Lagged`) and goes back to the log.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from outlive.base import ConversationId
from outlive.conversation.events import Delta, Event

FOLLOWER_LIMIT = 1_024  # signals that wait for one follower
FOLLOWER_CHARACTERS = 4 * 1024 * 1024  # of them; signals are shared, but a follower may be the last to hold them
RETAINED_CHARACTERS = 256 * 1024  # live output kept per open attempt, for those who come late
POLL_AWAY_S = 0.25  # how late durable events are when the feed is away
POLL_SAFETY_S = 2.0  # how late they are when only their signal was lost

Signal = Event | Delta
"""Something that happened, as it goes over the feed. An event too big for the feed goes as `Grown` instead."""


class Grown(NamedTuple):
    """The log reaches `head` now: read it."""

    head: int


class Lagged(NamedTuple):
    """Signals were dropped or may have been (a full queue, a lost connection): read the log, then go on."""


class Subscription(Protocol):
    async def receive(self) -> list[Event | Delta | Grown | Lagged]:
        """All that has come since the last call, in order; waits while there is nothing."""
        ...

    def retained(self) -> list[Delta]:
        """The live output so far of the attempts that are open, as far as it is kept: for whoever comes late.

        An attempt whose end was not heard of may still be in here: the log says which are open.
        """
        ...


class Feed(Protocol):
    def publish(self, conversation: ConversationId, signals: Sequence[Signal]) -> None:
        """Tell followers, in this order. Returns at once; never raises for a feed that is away."""
        ...

    async def flush(self) -> None:
        """Wait (bounded) until what was published before has left this process, or cannot."""
        ...

    def subscribe(self, conversation: ConversationId) -> AbstractAsyncContextManager[Subscription]:
        """Hear of everything from now on. Inside, `retained` has what was streamed before."""
        ...
