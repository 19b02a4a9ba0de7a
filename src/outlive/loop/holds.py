"""What a call of a tool waits for before it is run: what is written about it, and how it ended. Pure.

Rule 1: what a call waits for is in the log before anybody waits (`approval.requested`, `wait.started`), and so is how
        it ended, unless the time or a message did that. Whoever comes next, after whatever crash, finds the same.
Rule 2: all that need a person are asked for at once, when the first call of their answer is about to run: a person
        decides on all of them in one go.
Rule 3: an approval is for exactly the tool and the arguments that were asked about. Others are refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import JsonValue

from outlive.base import ApprovalId, EffectId, StepId, derive, to_text
from outlive.conversation.events import ApprovalDecided, ApprovalRequested, Event, EventData, WaitStarted
from outlive.loop.state import Call, Hold, TurnState

QUESTION_LIMIT = 2_000  # characters of a question that we ask about a tool; its arguments are there in full
EXPIRES_S = 7 * 24 * 3600.0
HOLD_LIMIT_S = 30 * 24 * 3600.0
BY_MESSAGE = "A message came instead of an answer."


@dataclass(frozen=True, slots=True)
class AskAbout:
    """Whether a tool may be run with these arguments."""

    tool: str
    arguments: Mapping[str, JsonValue]
    digest: str
    expires_s: float = EXPIRES_S


@dataclass(frozen=True, slots=True)
class AskPerson:
    """A question of the agent's own."""

    question: str
    proposal: str | None = None
    expires_s: float = EXPIRES_S


@dataclass(frozen=True, slots=True)
class WaitFor:
    """So many seconds, or until a moment."""

    seconds: float | None = None
    until: datetime | None = None


Wish = AskAbout | AskPerson | WaitFor
"""What a call asks for before it is run."""


@dataclass(frozen=True, slots=True)
class Settled:
    """How the waiting of a call ended. `by`: whoever decided. `waited_s`: since it was asked."""

    decision: str | None = None
    by: str | None = None
    comment: str | None = None
    waited_s: float = 0.0
    is_early: bool = False  # a message came
    is_changed: bool = False  # it was approved with other arguments than these


def effect_of(step: StepId) -> EffectId:
    """The one effect of a step."""
    return EffectId(derive("eff", step))


def approval_of(step: StepId) -> ApprovalId:
    """The one approval of a step."""
    return ApprovalId(derive("appr", step))


def asked(wish: Wish, call: Call, now: datetime) -> EventData:
    """What is written before the call waits."""
    match wish:
        case WaitFor(seconds=seconds, until=until):
            end = until if until is not None else now + timedelta(seconds=seconds or 0.0)
            end = min(max(end, now), now + timedelta(seconds=HOLD_LIMIT_S))  # "for ever" is 30 days
            return WaitStarted(step=call.step, call=call.id, until=to_text(end))
        case AskPerson(question=question, proposal=proposal, expires_s=expires_s):
            return ApprovalRequested(
                approval=approval_of(call.step),
                question=question,
                proposal=proposal,
                expires_at=to_text(now + timedelta(seconds=expires_s)),
                step=call.step,
            )
        case AskAbout(tool=tool, arguments=arguments, digest=digest, expires_s=expires_s):
            return ApprovalRequested(
                approval=approval_of(call.step),
                question=_question(tool, arguments),
                digest=digest,
                expires_at=to_text(now + timedelta(seconds=expires_s)),
                step=call.step,
                effect=effect_of(call.step),
                tool=tool,
                arguments=dict(arguments),
            )


def _question(tool: str, arguments: Mapping[str, JsonValue]) -> str:
    said = json.dumps(arguments, ensure_ascii=False)
    if len(said) > QUESTION_LIMIT:
        said = f"{said[:QUESTION_LIMIT]}… ({len(said):,} characters in all: look at the arguments)"
    return f"May {tool} be run with {said}?"


def expired(hold: Hold, now: str, *, is_spoken_to: bool) -> ApprovalDecided | None:
    """What is written when nobody decided, and nobody can any more."""
    if hold.approval is None or hold.decision is not None or not hold.is_over(now, is_spoken_to=is_spoken_to):
        return None
    comment = BY_MESSAGE if hold.until > now else None
    return ApprovalDecided(approval=hold.approval, decision="expired", comment=comment)


def undone_approvals(state: TurnState) -> list[ApprovalDecided]:
    """What is written of questions about calls that are left undone, because a message was to be taken at once."""
    answer = state.turn.answer if state.turn is not None else None
    if answer is None or not state.is_hurried:
        return []
    holds = [call.hold for call in answer.calls if call.outcome is None and not call.is_begun]
    return [
        ApprovalDecided(approval=hold.approval, decision="expired", comment=BY_MESSAGE)
        for hold in holds
        if hold is not None and hold.approval is not None and hold.decision is None
    ]


def settled(hold: Hold | None, events: list[Event], now: datetime, wish: Wish | None) -> Settled:
    """How a hold that is over ended. `events` are those of the conversation, from its first."""
    if hold is None:
        return Settled()
    request = events[hold.seq - 1]
    waited_s = max(0.0, (now - datetime.fromisoformat(request.at)).total_seconds())
    if hold.decided is None:
        return Settled(waited_s=waited_s, is_early=hold.until > to_text(now))
    decision = events[hold.decided - 1]
    is_changed = isinstance(wish, AskAbout) and request.data["digest"] != wish.digest
    data = decision.data
    return Settled(data["decision"], decision.actor, data["comment"], waited_s, is_changed=is_changed)
