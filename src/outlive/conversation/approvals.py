"""Approvals: questions to a person, as the log has them. The port that finds them, and the one way to decide.

Rule 1: an approval is two events of its conversation and nothing else: `approval.requested`, and `approval.decided`, at
        most once. Each is a batch of its own whose key the approval's id gives, so that the log itself finds them and
        takes only one decision, whoever decides at once.
Rule 2: it can be decided while its turn is open and it has not expired. One whose turn has ended is expired, whatever
        else is said of it.
Rule 3: one about a tool is bound to the tool and its arguments by their digest. Whoever runs it compares.
Rule 4: who approves of more of a budget raises it in the same batch: by what was asked for, or by the amount given.
"""

import json
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from blake3 import blake3
from pydantic import JsonValue

from outlive.base import (
    ApprovalId,
    Clock,
    ConflictError,
    ConversationId,
    EventId,
    InvalidError,
    NotFoundError,
    OperationId,
    TurnId,
    UnavailableError,
    derive,
    to_text,
)
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import ApprovalDecided, BudgetQuestion, BudgetRaised, Event, NewEvent
from outlive.conversation.log import Append

ApprovalState = Literal["pending", "approved", "denied", "expired"]
Decision = Literal["approve", "deny"]

COMMENT_LIMIT = 16_384  # characters
_ASK, _DECIDE = "ask/", "decide/"
_TRIES = 50  # while others write to the same conversation
_STATES: dict[str, ApprovalState] = {"approve": "approved", "deny": "denied", "expired": "expired"}


def ask_key(approval: str) -> str:
    """The key of the batch that asks."""
    return _ASK + approval


def decide_key(approval: str) -> str:
    """The key of the batch that decides."""
    return _DECIDE + approval


FIRST_KEY, LAST_KEY = ask_key("appr_"), ask_key("appr_g")
"""Between them are the keys of all batches that ask: ids go on in hexadecimal."""
DECIDE_PREFIX = _DECIDE
ASK_LENGTH = len(_ASK)


def digest_of(tool: str, arguments: Mapping[str, JsonValue]) -> str:
    """Of exactly this call: BLAKE3 of its canonical JSON (sorted, compact, ASCII)."""
    canonical = json.dumps({"arguments": arguments, "tool": tool}, sort_keys=True, separators=(",", ":"))
    return f"b3_{blake3(canonical.encode()).hexdigest()}"


class Found(NamedTuple):
    """An approval as a backend finds it. Payloads may be in the object store."""

    conversation: ConversationId
    asked: Event
    decided: Event | None
    open_turn: TurnId | None  # of the conversation, now


class ApprovalIndex(Protocol):
    """Finds approvals in the log of all conversations."""

    async def find(self, approval: ApprovalId) -> Found | None: ...

    async def list(
        self, *, limit: int, before: ApprovalId | None = None, is_pending: bool | None = None
    ) -> list[Found]:
        """Newest first, with an id smaller than `before`. `is_pending`: only those that wait for a decision, or only
        the others."""
        ...


class Approval(NamedTuple):
    id: ApprovalId
    state: ApprovalState
    conversation: ConversationId
    turn: TurnId | None
    question: str
    proposal: str | None
    tool: str | None
    arguments: dict[str, JsonValue] | None
    effect: str | None
    digest: str | None
    requested_at: str
    expires_at: str
    decided_by: str | None
    decided_at: str | None
    comment: str | None
    budget: dict[str, JsonValue] | None


def approval_of(found: Found, now: str) -> Approval:
    """What the events amount to at this moment. They are whole and of today's version."""
    asked, decided = found.asked.data, found.decided.data if found.decided is not None else None
    is_open = found.asked.turn is not None and found.asked.turn == found.open_turn and asked["expires_at"] > now
    state: ApprovalState = "pending" if is_open else "expired"
    if decided is not None:
        state = _STATES[decided["decision"]]
    return Approval(
        id=ApprovalId(asked["approval"]),
        state=state,
        conversation=found.conversation,
        turn=found.asked.turn,
        question=asked["question"],
        proposal=asked["proposal"],
        tool=asked["tool"],
        arguments=asked["arguments"],
        effect=asked["effect"],
        digest=asked["digest"],
        requested_at=found.asked.at,
        expires_at=asked["expires_at"],
        decided_by=found.decided.actor if found.decided is not None else None,
        decided_at=found.decided.at if found.decided is not None else None,
        comment=decided["comment"] if decided is not None else None,
        budget=asked["budget"],
    )


Approved = list[Approval]  # named here, since `Approvals.list` hides the builtin below it


class Approvals:
    """Approvals as the rest of the house uses them."""

    def __init__(self, conversations: Conversations, index: ApprovalIndex, clock: Clock) -> None:
        self._conversations = conversations
        self._index = index
        self._clock = clock

    async def get(self, approval: ApprovalId) -> Approval:
        return approval_of(await self._find(approval), self._now())

    async def list(
        self, *, limit: int, before: ApprovalId | None = None, state: ApprovalState | None = None
    ) -> "Approved":
        """Newest first."""
        is_pending = None if state is None else state == "pending"
        listed: Approved = []
        while len(listed) < limit:
            page = await self._index.list(limit=limit, before=before, is_pending=is_pending)
            made = [approval_of(await self._whole(found), self._now()) for found in page]
            listed += [each for each in made if state is None or each.state == state]
            if len(page) < limit:
                break
            before = made[-1].id
        return listed[:limit]

    async def decide(
        self,
        operation: OperationId,
        approval: ApprovalId,
        decision: Decision,
        *,
        actor: str,
        comment: str | None,
        amount: float | None = None,
    ) -> Approval:
        """Decide, once: in the log when this returns. The same operation again: the same answer. `conflict` if it was
        decided, has expired, or its turn is over. `amount`: by how much the budget that it is about is raised."""
        data = ApprovalDecided(approval=approval, decision=decision, comment=comment)
        event = EventId(derive("evt", operation))
        for _ in range(_TRIES):
            found = await self._find(approval)
            if found.decided is not None and found.decided.id == event:
                return approval_of(found, self._now())
            refuse_decided(approval_of(found, self._now()), self._now())
            conversation = await self._conversations.get(found.conversation)
            if conversation.turn != found.asked.turn:
                continue  # it has ended just now: the next look says so
            now = to_text(self._clock.now())
            more = raise_of(approval_of(found, now), decision, amount)
            raised = [NewEvent(more, now, EventId(derive("evt", operation, 2)))] if more is not None else []
            try:
                await self._conversations.append(
                    Append(
                        found.conversation,
                        (NewEvent(data, now, event), *raised),
                        key=decide_key(approval),
                        actor=actor,
                        turn=found.asked.turn,
                        expect=conversation.head,
                    )
                )
            except ConflictError as error:
                if error.code not in ("append.moved", "append.key_reused"):
                    raise
        raise UnavailableError("approval.busy", "The conversation is written to all the time; try again.")

    def _now(self) -> str:
        return to_text(self._clock.now())

    async def _find(self, approval: ApprovalId) -> Found:
        found = await self._index.find(approval)
        if found is None:
            raise NotFoundError("approval.not_found", f"There is no approval {approval!r}.")
        return await self._whole(found)

    async def _whole(self, found: Found) -> Found:
        asked = await self._conversations.whole(found.asked)
        decided = await self._conversations.whole(found.decided) if found.decided is not None else None
        return found._replace(asked=asked, decided=decided)


def raise_of(approval: Approval, decision: Decision, amount: float | None) -> BudgetRaised | None:
    """What is written with the decision. Pure."""
    asked = BudgetQuestion.model_validate(approval.budget) if approval.budget is not None else None
    if amount is not None and (asked is None or decision != "approve"):
        raise InvalidError("approval.amount", "An amount is for approving of more of a budget, and nothing else.")
    if asked is None or decision != "approve":
        return None
    given = asked.amount if amount is None else amount
    whole = asked.limit in ("tokens", "steps")
    added = {asked.limit: math.ceil(given) if whole else given}
    return BudgetRaised.model_validate({"scope": asked.scope, "approval": approval.id, **added})


def refuse_decided(approval: Approval, now: str) -> None:
    """Whether it can still be decided. Pure."""
    if approval.state in ("approved", "denied"):
        raise ConflictError("approval.decided", f"{approval.id!r} was {approval.state} before.", state=approval.state)
    if approval.state == "expired" or approval.expires_at <= now:
        raise ConflictError("approval.expired", f"{approval.id!r} has expired: nobody waits for it any more.")
