"""Before a tool step is begun: whatever it has to wait for is in the log, and it is run only when that is over.

Nothing here waits. What is not over is left to the plan, which says so; the workflow waits, and the step is run again.
"""

from datetime import datetime
from typing import NamedTuple

from outlive.base import ConflictError, CrashPoint, StepId, TurnId, reach, to_text
from outlive.conversation.approvals import ask_key, decide_key
from outlive.conversation.events import ApprovalRequested, EventData, ToolCall
from outlive.loop.activities.scribe import MOVED, Scribe, actor_of
from outlive.loop.binding import Persona
from outlive.loop.holds import Settled, Wish, asked, expired, settled, undone_approvals
from outlive.loop.state import Call, LastAnswer, OpenTurn
from outlive.loop.tools.waiting import wish_of
from outlive.loop.views import View

_TRIES = 50  # while others write to the same conversation
_LOOP = "loop"  # who says that nobody decided


class _News(NamedTuple):
    key: str
    actor: str
    data: EventData


def find_call(view: View, answer: LastAnswer, due: Call) -> ToolCall:
    """As the model wrote it. Events are dense from 1, so an answer is found by its seq; ids may be there twice."""
    calls = view.events[answer.seq - 1].data["tool_calls"]
    return ToolCall.model_validate(calls[due.n - answer.n - 1])


def due_call(turn: OpenTurn | None, of: TurnId, step: StepId) -> Call | None:
    """The call, if it still has to be run: not if it is sealed, or of a turn that is over."""
    if turn is None or turn.id != of or not turn.may_take(step) or turn.bound is None or turn.answer is None:
        return None
    return next((call for call in turn.answer.calls if call.step == step and call.outcome is None), None)


async def settle(scribe: Scribe, view: View, turn: TurnId, step: StepId, persona: Persona) -> Settled | None:
    """How what the step waited for has ended. None: the step is not to be run now, or not any more."""
    for _ in range(_TRIES):
        now = scribe.conversations.clock.now()
        due = due_call(view.state.turn, turn, step)
        if due is None:
            return None
        news = _news(view, due, persona, now)
        if news is None:
            return _settled(view, due, persona, now)
        try:
            await scribe.say(view, turn, news.key, news.actor, news.data, expect=view.seq)
        except ConflictError as error:
            if error.code not in MOVED:
                raise
            await scribe.views.refresh(view)
        if isinstance(news.data, ApprovalRequested):
            reach(CrashPoint.APPROVAL_AFTER_REQUEST)
    raise ConflictError("append.moved", "The conversation is written to all the time; the step is tried again.")


async def forget_undone(scribe: Scribe, view: View, turn: TurnId) -> None:
    """Nobody is asked any more about calls that are left undone for a message. Whoever decides now comes first."""
    for _ in range(_TRIES):
        undone = undone_approvals(view.state)
        if not undone or view.state.turn is None or view.state.turn.id != turn:
            return
        data = undone[0]
        try:
            await scribe.say(view, turn, decide_key(data.approval), _LOOP, data, expect=view.seq)
        except ConflictError as error:
            if error.code not in MOVED:
                raise
            await scribe.views.refresh(view)
    raise ConflictError("append.moved", "The conversation is written to all the time; the step is tried again.")


def _news(view: View, due: Call, persona: Persona, now: datetime) -> _News | None:
    """What has to be written first. Questions to people come at once for all calls of the answer; a time begins when
    its call is next."""
    state = view.state
    assert state.turn is not None
    assert state.turn.answer is not None
    for call in state.turn.answer.calls:
        if call.outcome is not None or call.hold is not None or (state.is_hurried and not call.is_begun):
            continue
        wish = _wish(view, state.turn.answer, call, persona)
        if wish is None:
            continue
        data = asked(wish, call, now)
        if isinstance(data, ApprovalRequested):
            return _News(ask_key(data.approval), actor_of(state.turn.bound), data)
        if call.step == due.step:
            return _News(f"wait/{call.step}", actor_of(state.turn.bound), data)
    if due.hold is None:
        return None
    nobody = expired(due.hold, to_text(now), is_spoken_to=bool(state.waiting))
    return None if nobody is None else _News(decide_key(nobody.approval), _LOOP, nobody)


def _settled(view: View, due: Call, persona: Persona, now: datetime) -> Settled | None:
    state, hold = view.state, due.hold
    is_spoken_to = bool(state.waiting)
    if hold is not None and not hold.is_over(to_text(now), is_spoken_to=is_spoken_to):
        return None
    if hold is not None and hold.decision == "expired" and not is_spoken_to:
        return None  # the turn ends
    assert state.turn is not None
    assert state.turn.answer is not None
    return settled(hold, view.events, now, _wish(view, state.turn.answer, due, persona))


def _wish(view: View, answer: LastAnswer, call: Call, persona: Persona) -> Wish | None:
    return wish_of(find_call(view, answer, call), persona.tools, persona.approve, persona.approve_expires_s)
