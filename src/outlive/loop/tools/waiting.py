"""`wait` and `ask_human`: tools that let a turn wait, at no cost, for the time or for a person.

They do nothing themselves. The turn waits before their step is begun (`activities/holding.py`), whoever runs it and
however often its worker dies; when that is over, what came of it is their result.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import Field, field_validator, model_validator

from outlive.conversation.approvals import digest_of
from outlive.conversation.events import ToolCall
from outlive.loop.holds import EXPIRES_S, HOLD_LIMIT_S, AskAbout, AskPerson, Settled, WaitFor, Wish
from outlive.loop.tools.arguments import Arguments, Text, parse
from outlive.loop.tools.built_in import BuiltIn
from outlive.loop.tools.mcp.listing import server_of
from outlive.loop.tools.port import LATER, ToolContext, ToolResult

QUESTION_LIMIT = 16_384  # characters


class WaitArguments(Arguments):
    seconds: float | None = Field(
        None, ge=0, le=HOLD_LIMIT_S, allow_inf_nan=False, description="How long, at most 30 days."
    )
    until: datetime | None = Field(
        None, description="Or until when, at most 30 days from now: an ISO 8601 date and time; UTC if it names no zone."
    )

    @field_validator("until")
    @classmethod
    def _is_in_a_zone(cls, until: datetime | None) -> datetime | None:
        if until is None:
            return None
        try:
            return until.replace(tzinfo=UTC) if until.tzinfo is None else until.astimezone(UTC)
        except OverflowError:
            raise ValueError("is no moment that a clock shows") from None

    @model_validator(mode="after")
    def _is_one_of_them(self) -> "WaitArguments":
        if (self.seconds is None) == (self.until is None):
            raise ValueError("give either seconds or until")
        return self


class Wait(BuiltIn[WaitArguments]):
    name = "wait"
    description = (
        "Wait, for seconds or until a moment, up to 30 days. Nothing runs meanwhile: the machine sleeps, with all that "
        "runs in it. A message that comes ends the wait."
    )
    arguments = WaitArguments

    async def act(self, arguments: WaitArguments, context: ToolContext) -> ToolResult:
        settled = context.settled or Settled()
        waited = f"Waited {settled.waited_s:,.0f} s"
        return ToolResult("finished", f"{waited}; then a message came." if settled.is_early else f"{waited}.")


class AskHumanArguments(Arguments):
    question: Text = Field(min_length=1, max_length=QUESTION_LIMIT, description="What to ask.")
    proposal: Text | None = Field(
        None, min_length=1, max_length=QUESTION_LIMIT, description="What you would do, for a yes or a no."
    )


class AskHuman(BuiltIn[AskHumanArguments]):
    name = "ask_human"
    description = (
        "Ask the people in this conversation, and wait for an answer: minutes or days. Only for what you cannot find "
        "out yourself, or may not decide."
    )
    arguments = AskHumanArguments

    async def act(self, arguments: AskHumanArguments, context: ToolContext) -> ToolResult:
        settled = context.settled or Settled()
        match settled.decision:
            case "approve":
                return ToolResult("finished", settled.comment or "Yes.")
            case "deny":
                return ToolResult("finished", f"No. {settled.comment}" if settled.comment else "No.")
            case _:
                return ToolResult("finished", "Nobody answered this question, but a message came: read it.")


def wish_of(call: ToolCall, allowed: Collection[str], approve: Collection[str], expires_s: float | None) -> Wish | None:
    """What has to be waited for before a call is run. Nothing for one that its tool would refuse anyway."""
    is_of_server = server_of(call.name) is not None  # which are not in the list of an agent's tools
    if not (is_of_server or call.name in allowed) or call.error is not None:
        return None
    if call.name == Wait.name:
        given = parse(WaitArguments, call)
        return None if isinstance(given, ToolResult) else WaitFor(given.seconds, given.until)
    if call.name == AskHuman.name:
        question = parse(AskHumanArguments, call)
        if isinstance(question, ToolResult):
            return None
        return AskPerson(question.question, question.proposal, expires_s or EXPIRES_S)
    if call.name in approve:
        return AskAbout(call.name, call.arguments, digest_of(call.name, call.arguments), expires_s or EXPIRES_S)
    return None


def refused(settled: Settled) -> ToolResult | None:
    """What a call comes to that a person was asked about and that may not be run."""
    if settled.is_changed:
        return ToolResult(
            "rejected", "What was approved had other arguments. Call it again, and it is asked about anew."
        )
    match settled.decision:
        case "approve":
            return None
        case "deny":
            return ToolResult("rejected", f"A person denied it: {settled.comment}" if settled.comment else _DENIED)
        case _:
            return ToolResult("rejected", "It needs a person's approval, and nobody decided in time.")


def commented(result: ToolResult, settled: Settled) -> ToolResult:
    """What a person said when they approved of it is told too."""
    if not settled.comment or result is LATER:
        return result
    return replace(result, output=f"[approved by a person, who said: {settled.comment}]\n{result.output}")


_DENIED = "A person denied it, without saying why."
