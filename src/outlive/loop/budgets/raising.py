"""What people see of a budget, and how they give more.

Rule 1: a raise is an event of the log, `budget.raised`. One that lifts the limit that a person was asked about answers
        that question, in the same batch; any other leaves the question open.
        One that raises nothing is refused.
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
from outlive.conversation.events import ApprovalDecided, BudgetLimit, BudgetRaised, BudgetScope, NewEvent
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

    @property
    def limits(self) -> dict[BudgetScope, dict[BudgetLimit, float]]:
        return {
            scope: {
                limit: named + self.ledger.raised[scope].get(limit, 0)
                for limit in LIMITS
                if (named := getattr(self.budget, scope).of(limit)) is not None
            }
            for scope in _SCOPES
        }

    def is_raised_by(self, given: BudgetRaised, *, is_open: bool) -> bool:
        """Whether this is more of anything that is limited; of a turn only while one `is_open`."""
        scopes = [each for each in _SCOPES if given.scope in (each, "both") and (is_open or each != "turn")]
        return any(getattr(given, limit) > 0 for scope in scopes for limit in self.limits[scope])

    def to_json(self) -> dict[str, Any]:
        question = self.ledger.question
        return {
            "limits": self.limits,
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
        is for a turn, and none is open, or if nothing of what is given is limited."""
        event = EventId(derive("evt", operation))
        for _ in range(_TRIES):
            found = await self._conversations.get(conversation)
            view = await self.find(found)
            fold = await self._fold(conversation)
            if event in fold.raises:
                return
            if given.scope == "turn" and found.turn is None:
                raise ConflictError("turn.none_open", f"No turn is open in {conversation!r}: raise the conversation's.")
            _check_raised(conversation, view, given, is_open=found.turn is not None)
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

    async def get(self, conversation: Conversation) -> BudgetView:
        """As `find`; `conflict` if there is no budget."""
        found = await self.find(conversation)
        if found is None:
            raise _no_budget(conversation.id)
        return found

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


def _no_budget(conversation: ConversationId) -> ConflictError:
    return ConflictError("budget.none", f"The agent of {conversation!r} has no budget: nothing of it is limited.")


def _check_raised(conversation: ConversationId, view: BudgetView | None, given: BudgetRaised, *, is_open: bool) -> None:
    if view is None:
        raise _no_budget(conversation)
    if view.is_raised_by(given, is_open=is_open):
        return
    turn, whole = (", ".join(view.limits[scope]) for scope in _SCOPES)
    there = [f"of a turn ({'one' if is_open else 'none'} is open): {turn}"] if turn else []
    there += [f"of the conversation: {whole}"] if whole else []
    raise ConflictError(
        "budget.no_limit", f"This raises no limit of {conversation!r}. There are limits {'; '.join(there)}."
    )
