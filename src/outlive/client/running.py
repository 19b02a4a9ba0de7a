"""Sending a message and following what comes of it, until the turn that it belongs to has ended.

Rule: it begins right before the message, whatever others say meanwhile, and ends with the `turn.finished` of its turn.
      Nothing of the turn is missed: the place to follow from is known before the message is sent.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from outlive.client.following import Following
from outlive.client.wire import Event, Sent

Send = Callable[[], Awaitable[Sent]]
Stand = Callable[[], Awaitable[str | None]]
FollowFrom = Callable[[str | None], Following]


class Run:
    """An async iterator over events. The message is sent with `start`, or when the first event is asked for."""

    def __init__(self, send: Send, stand: Stand, follow: FollowFrom) -> None:
        self.sent: Sent | None = None
        self.outcome: str | None = None
        """Of the turn, once it has ended: done, interrupted, failed, out_of_budget or waiting_expired."""
        self._send = send
        self._stand = stand
        self._follow = follow
        self._following: Following | None = None

    @property
    def position(self) -> str | None:
        """Of the last event that was given out: from here one can go on to follow."""
        return self._following.position if self._following is not None else None

    async def start(self) -> Sent:
        """Send the message. Again: nothing more is sent."""
        if self.sent is None:
            position = await self._stand()
            self.sent = await self._send()
            self._following = self._follow(position)
        return self.sent

    async def next_events(self) -> list[Event]:
        """All that is there, at least one; nothing when the turn has ended."""
        sent = await self.start()
        if self.outcome is not None:
            return []
        assert self._following is not None
        events = await self._following.next_events()
        for place, event in enumerate(events, 1):
            if _ends(event, sent):
                self.outcome = str(event.data.get("outcome"))
                await self.aclose()
                return events[:place]
        return events

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            while events := await self.next_events():
                for event in events:
                    yield event
        finally:
            with anyio.CancelScope(shield=True):
                await self.aclose()

    async def aclose(self) -> None:
        """Leave. The turn goes on."""
        if self._following is not None:
            await self._following.aclose()


def _ends(event: Event, sent: Sent) -> bool:
    return event.type == "turn.finished" and event.turn == sent.turn_id and (event.seq or 0) > sent.seq
