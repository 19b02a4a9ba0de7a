"""What to do next in a turn, as it goes over the wire: `decide` makes a Plan, every activity returns the next one, and
the workflow does what it says. References only: the plan of a long turn is as small as that of a short one.

A Plan says exactly one thing. A new thing to do is a field more here and a row more in `decide.py`; who does not know
it refuses the plan.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer, model_validator

from outlive.base import ConversationId, StepId, TurnId

Outcome = Literal["done", "interrupted", "failed", "out_of_budget", "waiting_expired"]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Begin(_Wire):
    """Bind the turn to an agent, its version and a model: `turn.started`. The names are what people asked for."""

    agent: str | None = None
    model: str | None = None


class ModelStep(_Wire):
    step: StepId
    n: int  # its place in the turn, from 1


class CompactStep(_Wire):
    """Summarise what is old, as was requested at event `requested`."""

    step: StepId
    requested: int


class ToolStep(_Wire):
    step: StepId
    call: str
    name: str


class Wait(_Wire):
    """Nothing can be done until something comes into the log, or `until`. Not yet parked: say so in the log and let
    the machine sleep first."""

    until: str | None = None
    is_parked: bool = False


class Finish(_Wire):
    """End the turn, if the head of the log still is the plan's `seq`. An interrupted one ends wherever the head is.

    `reason` is a sentence of ours. What others said is in a blob, and `words` is its name."""

    outcome: Outcome
    reason: str | None = None
    words: str | None = None


class Plan(_Wire):
    """`seq` is the head of the log that the plan was made at: of two plans the one with the higher seq counts.

    `tools` are run at the same time; when all of them are sealed the next plan says what follows.
    """

    conversation: ConversationId
    turn: TurnId | None = None
    seq: int
    begin: Begin | None = None
    model: ModelStep | None = None
    compact: CompactStep | None = None
    tools: tuple[ToolStep, ...] = ()
    wait: Wait | None = None
    finish: Finish | None = None
    nothing: bool = False

    @model_serializer(mode="wrap")
    def _without_what_is_new(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What was added later is left out where it is not said: workers of before read all other plans."""
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if name != "compact" or value is not None}

    @model_validator(mode="after")
    def _says_one_thing(self) -> "Plan":
        steps = (self.model, self.compact, self.tools)
        said = [bool(each) for each in (self.begin, *steps, self.wait, self.finish, self.nothing)]
        if said.count(True) != 1:
            raise ValueError("A plan says exactly one of begin, model, compact, tools, wait, finish and nothing.")
        if (self.turn is None) != self.nothing:
            raise ValueError("A plan names the turn that it is for, unless there is nothing to do.")
        return self


def newest(*plans: Plan) -> Plan:
    """Of the plans that several activities returned, the one that knows most."""
    return max(plans, key=lambda plan: plan.seq)
