"""Before a step is begun: whether the budget has room for it. If not, a person is asked for more, in the log.

Nothing here waits, as in `holding.py`: while nobody has answered the plan says `wait`, and the step is run again when
somebody has.
"""

from collections.abc import Callable
from datetime import timedelta

from outlive.base import ApprovalId, ConflictError, CrashPoint, TurnId, derive, reach, to_text
from outlive.conversation.approvals import ask_key
from outlive.conversation.events import ApprovalRequested, BudgetQuestion
from outlive.loop.activities.scribe import MOVED, Scribe, actor_of
from outlive.loop.binding import Persona
from outlive.loop.budgets import Ledger, Short
from outlive.loop.holds import EXPIRES_S
from outlive.loop.views import View

_TRIES = 50  # while others write to the same conversation

Room = Callable[[Ledger], int | Short | None]


async def find_room(scribe: Scribe, view: View, turn: TurnId, persona: Persona, room: Room) -> tuple[bool, int | None]:
    """Whether the step may be begun, and what `room` says then. If not, the plan says what follows."""
    for _ in range(_TRIES):
        now = scribe.conversations.clock.now()
        state = view.state.turn
        if state is None or state.id != turn or state.is_interrupted:
            return False, None
        if state.gate is not None and state.gate.decision != "approve":
            return False, None
        ledger = view.ledger(to_text(now))
        found = room(ledger)
        if not isinstance(found, Short):
            return True, found
        approval = ApprovalId(derive("appr", turn, ledger.asked + 1))
        expires_s = persona.approve_expires_s or EXPIRES_S
        question = ApprovalRequested(
            approval=approval,
            question=found.question,
            expires_at=to_text(now + timedelta(seconds=expires_s)),
            budget=BudgetQuestion(scope=found.scope, limit=found.limit, amount=found.amount),
        )
        try:
            await scribe.say(view, turn, ask_key(approval), actor_of(state.bound), question, expect=view.seq)
        except ConflictError as error:
            if error.code not in MOVED:
                raise
            await scribe.views.refresh(view)
        reach(CrashPoint.APPROVAL_AFTER_REQUEST)
    raise ConflictError("append.moved", "The conversation is written to all the time; the step is tried again.")
