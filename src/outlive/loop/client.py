"""The port through which others speak to turns: by the conversation's id, and never for reading."""

from typing import Protocol

from outlive.base import ConversationId, TurnId


class LoopClient(Protocol):
    async def submit(self, conversation: ConversationId, turn: TurnId | None = None) -> None:
        """Something new is in the log: the turn that runs sees it, or one begins. Said after it is durable, never
        before. `turn`: that it is of, if the caller knows: a run that begins need not look for it. `unavailable` if
        nobody takes it now: then the sweeper does later."""
        ...

    async def interrupt(
        self,
        conversation: ConversationId,
        turn: TurnId,
        *,
        by: str,
        reason: str | None,
        seen: int | None = None,
        is_awaited: bool = True,
    ) -> None:
        """Stop the turn. Returns when it has ended in the log, or (not `is_awaited`) when it was told to; one that is
        over already changes nothing. `seen`: the head of the log when it was asked for; a message after that is not
        stopped, and opens a turn of its own."""
        ...

    async def is_running(self, conversation: ConversationId) -> bool:
        """Whether a run of its turn is open."""
        ...

    async def restart(self, conversation: ConversationId, reason: str) -> None:
        """Begin a run for a turn that is open and has none. The run says `turn.recovered` with this reason; if there is
        one by now, nothing changes."""
        ...
