"""Steering a turn from outside: what people ask of it while it runs goes into its log, and then the loop is told, if it
has to know.

Rule 1: it is decided by what the log says, at the head at which it is appended: whoever writes first is seen.
Rule 2: what is so already changes nothing, and is no error: two people may pause the same turn. What an operation has
        said before a crash it finds again, by the id of its event, also when the turn has ended since.
"""

import logging
from collections.abc import Callable, Sequence

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
from outlive.conversation.events import (
    CompactionRequested,
    EventData,
    ModelChanged,
    ModelScope,
    NewEvent,
    TurnPaused,
    TurnResumed,
)
from outlive.conversation.log import Append, Conversation
from outlive.loop.budgets.raising import Budgets
from outlive.loop.budgets.room import unknown_price
from outlive.loop.client import LoopClient
from outlive.loop.follow_ups import FollowUp, QueueFold
from outlive.loop.models.prices import price_of
from outlive.loop.models.registry import parse_model
from outlive.loop.state import OpenTurn, TurnState

_TRIES = 50  # while others write to the same conversation

_log = logging.getLogger(__name__)

Decide = Callable[[QueueFold], EventData | None]
"""What is written, if anything. Refuses by raising."""


class Steering:
    """`budgets`: None where nothing is limited."""

    def __init__(self, conversations: Conversations, loop: LoopClient | None, budgets: Budgets | None = None) -> None:
        self._conversations = conversations
        self._loop = loop
        self._budgets = budgets

    async def pause(
        self, operation: OperationId, conversation: ConversationId, *, actor: str, reason: str | None
    ) -> Conversation:
        """From the next step on the turn waits, until somebody resumes it. A step that has begun is finished."""

        def decide(fold: QueueFold) -> EventData | None:
            return None if _open(fold.state()).is_paused else TurnPaused(reason=reason)

        await self._steer(operation, conversation, actor, decide)
        await self._tell(conversation)
        return await self._conversations.get(conversation)

    async def resume(self, operation: OperationId, conversation: ConversationId, *, actor: str) -> Conversation:
        """The turn goes on where it was."""

        def decide(fold: QueueFold) -> EventData | None:
            return TurnResumed() if _open(fold.state()).is_paused else None

        await self._steer(operation, conversation, actor, decide)
        await self._tell(conversation)
        return await self._conversations.get(conversation)

    # ── messages that wait; whoever takes them finds in the log what became of them ──

    async def queue(self, conversation: ConversationId) -> list[FollowUp]:
        """The messages that wait, in the order in which the model will be told."""
        await self._conversations.get(conversation)  # says so if there is none
        fold = QueueFold(conversation)
        await self._catch_up(fold)
        return fold.queue()

    async def withdraw(
        self, operation: OperationId, conversation: ConversationId, message: str, *, actor: str
    ) -> list[FollowUp]:
        """Take a message back that waits. What waits then."""
        fold = await self._steer(operation, conversation, actor, lambda fold: fold.withdraw(message))
        await self._tell(conversation)  # a turn that waits may have nothing left to do
        return fold.queue()

    async def order(
        self, operation: OperationId, conversation: ConversationId, order: Sequence[str], *, actor: str
    ) -> list[FollowUp]:
        """Put the messages that wait in another order. What waits then."""
        fold = await self._steer(operation, conversation, actor, lambda fold: fold.order(order))
        return fold.queue()

    async def change_model(
        self, operation: OperationId, conversation: ConversationId, *, actor: str, model: str, scope: ModelScope
    ) -> Conversation:
        """From the next attempt of a step on the open turn asks this model; with scope `conversation` later turns do
        too. Refused if nothing here could ask it, or a budget in money could not be kept with it."""
        model = str(parse_model(model))
        found = await self._conversations.get(conversation)
        limits = await self._budgets.find(found) if self._budgets is not None else None
        if limits is not None and limits.budget.has_money and price_of(model) is None:
            raise unknown_price(model)
        # The loop need not be told: whoever begins the next attempt looks into the log.
        await self._steer(operation, conversation, actor, lambda fold: model_change(fold.state(), model, scope))
        return await self._conversations.get(conversation)

    async def compact(
        self, operation: OperationId, conversation: ConversationId, *, actor: str, keep: int | None = None
    ) -> TurnState:
        """Have what is old summarised: before the next step of the turn that is open, else before the first of the next
        one. Asked for already: nothing changes. The conversation as it is once that is said."""

        def decide(fold: QueueFold) -> EventData | None:
            is_asked = fold.state().compaction is not None
            return None if is_asked else CompactionRequested(reason="asked", keep=keep)

        state = (await self._steer(operation, conversation, actor, decide)).state()
        if state.turn is not None:
            await self._tell(conversation)
        return state

    # ── inside ──

    async def _steer(
        self, operation: OperationId, conversation: ConversationId, actor: str, decide: Decide
    ) -> QueueFold:
        """The conversation as it is once that is said."""
        await self._conversations.get(conversation)  # says so if there is none
        fold, own = QueueFold(conversation), EventId(derive("evt", operation))
        is_said = False
        for _ in range(_TRIES):
            is_said = await self._catch_up(fold, own) or is_said
            if is_said:
                break
            news = decide(fold)
            if news is None or await self._is_said(own, fold, actor, news):
                break
        else:
            raise UnavailableError("turn.busy", "The conversation is written to all the time; try again.")
        reach(CrashPoint.TURN_AFTER_STEERING)
        return fold

    async def _catch_up(self, fold: QueueFold, own: EventId | None = None) -> bool:
        """Whether the event of our own is among what was read."""
        conversation, is_said = fold.state().conversation, False
        while events := await self._conversations.read(conversation, fold.seq, PAGE):
            for event in events:
                fold.take(event)
                is_said = is_said or event.id == own
        return is_said

    async def _is_said(self, own: EventId, fold: QueueFold, actor: str, news: EventData) -> bool:
        """False if somebody wrote first."""
        state = fold.state()
        new = NewEvent(news, to_text(self._conversations.clock.now()), own)
        turn = state.turn.id if state.turn is not None else None
        try:
            appended = await self._conversations.append(
                Append(state.conversation, (new,), key=f"steer/{own}", actor=actor, turn=turn, expect=state.seq)
            )
        except ConflictError as error:
            if error.code != "append.moved":
                raise
            return False
        fold.take(appended.events[0])
        return True

    async def _tell(self, conversation: ConversationId) -> None:
        """It is in the log: if nobody takes the word now, the sweeper tells it later."""
        if self._loop is None:
            return
        try:
            await self._loop.submit(conversation)
        except OutliveError as error:
            _log.warning("the loop was not told: %s", error.message, extra={"conversation": conversation})


def _open(state: TurnState) -> OpenTurn:
    if state.turn is None:
        raise ConflictError("turn.none_open", f"No turn is open in {state.conversation!r}.")
    return state.turn


def model_change(state: TurnState, model: str, scope: ModelScope) -> ModelChanged | None:
    """What is said; None if it is so already."""
    turn = _open(state) if scope == "turn" else state.turn
    is_so = turn is None or turn.model == model
    before = turn.model if turn is not None and scope == "turn" else state.model
    if scope == "conversation":
        is_so = is_so and state.model == model
    return None if is_so else ModelChanged(model=model, before=before, scope=scope)
