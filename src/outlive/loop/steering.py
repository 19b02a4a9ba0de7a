"""Steering a turn from outside: what people ask of it while it runs goes into its log, and then the loop is told.

Rule 1: it is decided by what the log says, at the head at which it is appended: whoever writes first is seen.
Rule 2: what is so already changes nothing, and is no error: two people may pause the same turn. What an operation has
        said before a crash it finds again, by the id of its event, also when the turn has ended since.
"""

import logging
from collections.abc import Callable

from outlive.base import (
    ConflictError,
    ConversationId,
    CrashPoint,
    EventId,
    OperationId,
    OutliveError,
    UnavailableError,
    derive,
    reach,
    to_text,
)
from outlive.conversation.conversations import PAGE, Conversations
from outlive.conversation.events import CompactionRequested, EventData, NewEvent, TurnPaused, TurnResumed
from outlive.conversation.log import Append, Conversation
from outlive.loop.client import LoopClient
from outlive.loop.fold import TurnFold
from outlive.loop.state import OpenTurn, TurnState

_TRIES = 50  # while others write to the same conversation

_log = logging.getLogger(__name__)

Decide = Callable[[TurnState], EventData | None]
"""What is written, if anything. Refuses by raising."""


class Steering:
    def __init__(self, conversations: Conversations, loop: LoopClient | None) -> None:
        self._conversations = conversations
        self._loop = loop

    async def pause(
        self, operation: OperationId, conversation: ConversationId, *, actor: str, reason: str | None
    ) -> Conversation:
        """From the next step on the turn waits, until somebody resumes it. A step that has begun is finished."""

        def decide(state: TurnState) -> EventData | None:
            return None if _open_turn(state).is_paused else TurnPaused(reason=reason)

        await self._steer(operation, conversation, actor, decide)
        return await self._conversations.get(conversation)

    async def resume(self, operation: OperationId, conversation: ConversationId, *, actor: str) -> Conversation:
        """The turn goes on where it was."""

        def decide(state: TurnState) -> EventData | None:
            return TurnResumed() if _open_turn(state).is_paused else None

        await self._steer(operation, conversation, actor, decide)
        return await self._conversations.get(conversation)

    async def compact(
        self, operation: OperationId, conversation: ConversationId, *, actor: str, keep: int | None = None
    ) -> TurnState:
        """Have what is old summarised: before the next step of the turn that is open, else before the first of the next
        one. Asked for already: nothing changes. The state that it was asked for in, as far as it is known."""

        def decide(state: TurnState) -> EventData | None:
            return None if state.compaction is not None else CompactionRequested(reason="asked", keep=keep)

        return await self._steer(operation, conversation, actor, decide)

    async def _steer(
        self, operation: OperationId, conversation: ConversationId, actor: str, decide: Decide
    ) -> TurnState:
        await self._conversations.get(conversation)  # says so if there is none
        fold, own = TurnFold(conversation), EventId(derive("evt", operation))
        is_said, state = False, fold.state()
        for _ in range(_TRIES):
            is_said = await self._catch_up(fold, own) or is_said
            state = fold.state()
            if is_said:
                break
            news = decide(state)
            if news is None or await self._is_said(own, state, actor, news):
                break
        else:
            raise UnavailableError("turn.busy", "The conversation is written to all the time; try again.")
        reach(CrashPoint.TURN_AFTER_STEERING)
        if state.turn is not None:
            await self._tell(conversation)
        return state

    async def _catch_up(self, fold: TurnFold, own: EventId) -> bool:
        """Whether the event of our own is among what was read."""
        conversation, is_said = fold.state().conversation, False
        while events := await self._conversations.read(conversation, fold.seq, PAGE):
            for event in events:
                fold.take(event)
                is_said = is_said or event.id == own
        return is_said

    async def _is_said(self, own: EventId, state: TurnState, actor: str, news: EventData) -> bool:
        """False if somebody wrote first."""
        new = NewEvent(news, to_text(self._conversations.clock.now()), own)
        key, turn = f"steer/{own}", state.turn.id if state.turn is not None else None
        try:
            await self._conversations.append(
                Append(state.conversation, (new,), key=key, actor=actor, turn=turn, expect=state.seq)
            )
        except ConflictError as error:
            if error.code != "append.moved":
                raise
            return False
        return True

    async def _tell(self, conversation: ConversationId) -> None:
        """It is in the log: if nobody takes the word now, the sweeper tells it later."""
        if self._loop is None:
            return
        try:
            await self._loop.submit(conversation)
        except OutliveError as error:
            _log.warning("the loop was not told: %s", error.message, extra={"conversation": conversation})


def _open_turn(state: TurnState) -> OpenTurn:
    if state.turn is None:
        raise ConflictError("turn.none_open", f"No turn is open in {state.conversation!r}.")
    return state.turn
