"""What people see of a budget, and how they give more.

Rule 1: a raise is an event of the log, `budget.raised`. One that lifts the limit that a person was asked about answers
        that question, in the same batch; any other leaves the question open.
Rule 2: what is shown is made from the log; the folds are kept, so that looking often reads only what is new. Bounded.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

from outlive.base import (
    Clock,
    ConflictError,
    ConversationId,
    EventId,
    NotFoundError,
    OperationId,
    UnavailableError,
    derive,
    to_text,
)
from outlive.conversation.approvals import decide_key
from outlive.conversation.conversations import PAGE, Conversations
from outlive.conversation.events import ApprovalDecided, BudgetRaised, BudgetScope, NewEvent
from outlive.conversation.log import Append, Conversation
from outlive.loop.agents import DEFAULT_AGENT, AgentRegistry
from outlive.loop.budgets.amounts import Budget, budget_of
from outlive.loop.budgets.ledger import LIMITS, BudgetFold, Ledger

KEPT = 1_000  # folds
_TRIES = 50  # while others write to the same conversation
_RAISED = "The budget was raised."
_MOVED = ("append.moved", "append.key_reused")

_SCOPES: tuple[BudgetScope, ...] = ("turn", "conversation")


class BudgetView(NamedTuple):
    """`limits` are what the agent has, with what was added. None of them: there is no budget."""

    budget: Budget
    ledger: Ledger

    def to_json(self) -> dict[str, Any]:
        limits = {
            scope: {
                limit: named + self.ledger.raised[scope].get(limit, 0)
                for limit in LIMITS
                if (named := getattr(self.budget, scope).of(limit)) is not None
            }
            for scope in _SCOPES
        }
        question = self.ledger.question
        return {
            "limits": limits,
            "used": {scope: self.ledger.used(scope).to_json() for scope in _SCOPES},
            "question": question._asdict() if question is not None else None,
        }


class Budgets:
    """`agents`: None where nobody answers; then nothing is limited."""

    def __init__(self, conversations: Conversations, agents: AgentRegistry | None, clock: Clock) -> None:
        self._conversations = conversations
        self._agents = agents
        self._clock = clock
        self._folds: OrderedDict[ConversationId, BudgetFold] = OrderedDict()

    async def find(self, conversation: Conversation) -> BudgetView | None:
        """Of the agent that the open turn was bound to, or that the next one will be. None if it has no budget."""
        if self._agents is None:
            return None
        try:
            agent = await self._agents.get(conversation.agent or DEFAULT_AGENT)
        except NotFoundError:
            return None  # a name that nobody has applied
        if agent.version == 1 and agent.definition.budget is None:
            return None  # nor had any version before: the log need not be read
        ledger = (await self._fold(conversation.id)).ledger(to_text(self._clock.now()))
        if ledger.turn is not None and ledger.version is not None:
            agent = await self._agents.version(*ledger.version)
        budget = budget_of(agent.definition.budget)
        return None if budget is None else BudgetView(budget, ledger)

    async def give(self, operation: OperationId, conversation: ConversationId, given: BudgetRaised, actor: str) -> None:
        """Add to the limits: in the log when this returns. The same operation again changes nothing. `conflict` if it
        is for a turn, and none is open."""
        event = EventId(derive("evt", operation))
        for _ in range(_TRIES):
            found = await self._conversations.get(conversation)
            fold = await self._fold(conversation)
            if event in fold.raises:
                return
            if given.scope == "turn" and found.turn is None:
                raise ConflictError("turn.none_open", f"No turn is open in {conversation!r}: raise the conversation's.")
            now = to_text(self._clock.now())
            question = fold.ledger(now).question
            news, key = [NewEvent(given, now, event)], f"raise/{operation}"
            if question is not None and question.is_lifted_by(given):
                answer = ApprovalDecided(approval=question.approval, decision="approve", comment=_RAISED)
                raised = given.model_copy(update={"approval": question.approval})
                news = [NewEvent(answer, now), NewEvent(raised, now, event)]
                key = decide_key(question.approval)
            append = Append(conversation, tuple(news), key, actor=actor, turn=found.turn, expect=fold.seq)
            try:
                await self._conversations.append(append)
                return
            except ConflictError as error:
                if error.code not in _MOVED:
                    raise
        raise UnavailableError("budget.busy", "The conversation is written to all the time; try again.")

    async def _fold(self, conversation: ConversationId) -> BudgetFold:
        """At the head of the log, as it is now."""
        fold = self._folds.get(conversation) or BudgetFold()
        while events := await self._conversations.read(conversation, fold.seq, PAGE):
            for event in events:
                fold.take(event)
        self._folds[conversation] = fold
        self._folds.move_to_end(conversation)
        while len(self._folds) > KEPT:
            self._folds.popitem(last=False)
        return fold
