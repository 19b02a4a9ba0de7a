"""What passes between a turn's workflow, its activities and whoever speaks to it: names and shapes. References only.

They are in the histories of turns that are open while an upgrade happens: a name is never changed, a field is only ever
added, with a default. Pure.
"""

from pydantic import BaseModel, ConfigDict

from outlive.base import ConversationId, TurnId
from outlive.loop.plan import CompactStep, Finish, ModelStep, Plan, ToolStep

TURN = "loop.turn"

PLAN = "loop.plan"
CALL_MODEL = "loop.call_model"
COMPACT = "loop.compact"
RUN_TOOL = "loop.run_tool"
END_TURN = "loop.end_turn"
REST = "loop.rest"

ANNOUNCE = "loop.announce"
DELIVER = "loop.deliver_announcement"

SUBMIT = "submit"
INTERRUPT = "interrupt"


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True)


class Interrupt(_Wire):
    """Somebody stops a turn. `words` is the blob that says why; `seen` the head of the log when it was asked for."""

    turn: TurnId
    by: str  # the principal
    reason: str | None = None  # of runs that began when the reason itself was told; the blob is, since
    words: str | None = None
    seen: int | None = None


class TurnTask(_Wire):
    """What a run begins with. `recovered` says why somebody had to start it again; `plan` and `interrupt` are what the
    run before it, which got too long, left."""

    conversation: ConversationId
    recovered: str | None = None
    plan: Plan | None = None
    interrupt: Interrupt | None = None


class LookTask(_Wire):
    """Look into the log. `run` is the run that asks: what it had to be started for is said once."""

    conversation: ConversationId
    recovered: str | None = None
    run: str = ""


class ModelTask(_Wire):
    conversation: ConversationId
    turn: TurnId
    model: ModelStep


class CompactTask(_Wire):
    conversation: ConversationId
    turn: TurnId
    compact: CompactStep


class ToolTask(_Wire):
    conversation: ConversationId
    turn: TurnId
    tool: ToolStep


class RestTask(_Wire):
    """Say that the turn waits, and let its machine sleep."""

    conversation: ConversationId
    turn: TurnId


class AnnounceTask(_Wire):
    """Tell the outside of an approval."""

    approval: str


class EndTask(_Wire):
    """End a turn. With `expect` only if the head of the log still is there."""

    conversation: ConversationId
    turn: TurnId
    finish: Finish
    expect: int | None = None
    interrupt: Interrupt | None = None
