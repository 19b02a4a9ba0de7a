"""The port to a tool: what a model may call, what it is told, and what a tool has at hand while it runs.

Rule 1: an expected end is a value. `finished` (also with an exit code that is not 0), `failed` (the tool could not do
        it), `rejected` (it was never begun), `lost` (nobody knows; never done again). A tool raises only what a retry
        of the same step may mend (`unavailable`, `deadline`), or `fenced`.
Rule 2: a step may be run more than once, always with the same effect id. A tool that is idempotent does its work once
        under that id, whoever asks again; one that is not is not asked again, and its outcome is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import JsonValue

from outlive.base import ConflictError, ConversationId, EffectId, StepId, TurnId
from outlive.conversation.artifacts import Artifacts
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import ToolCall
from outlive.loop.fitting import RESULT_BYTES
from outlive.loop.holds import Settled
from outlive.loop.tools.facts import Runs
from outlive.machine.terminal.status import Operator

if TYPE_CHECKING:
    from outlive.loop.subagents.family import Subagents
    from outlive.loop.tools.machine import ConversationMachines
    from outlive.loop.tools.reach import ToolMachine

Outcome = Literal["finished", "failed", "rejected", "lost"]

Say = Callable[[str, str], None]
"""Live output: the text and the stream it belongs to (`stdout`, `stderr`)."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended, as the model is told. `blob` has the whole output where `output` is only a part of it."""

    outcome: Outcome
    output: str
    exit_code: int | None = None
    blob: str | None = None


LATER = ToolResult("finished", "")
"""Returned as it is by a tool whose call has no end yet: it waits in the log, and is run again when that is over."""


@dataclass(frozen=True, slots=True)
class ToolParts:
    """What tools are made of, in one process. Without `machines`, those that need one are rejected. `result_bytes`: of
    one result, all that is said about it included; what is longer is cut, and kept whole in a blob."""

    conversations: Conversations
    artifacts: Artifacts
    machines: "ConversationMachines | None" = None
    result_bytes: int = RESULT_BYTES
    subagents: "Subagents | None" = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One step of one turn, for the tool that it runs. `effect_id` is the same for every attempt of the step."""

    parts: ToolParts
    conversation: ConversationId
    turn: TurnId
    step: StepId
    effect_id: EffectId
    operator: Operator  # in whose name it acts
    say: Say
    environment: str | None = None  # of the agent, for a conversation that names none
    is_again: bool = False  # an attempt before this one may have begun it
    machines: frozenset[str] = frozenset()  # in which an attempt before this one may have begun it
    settled: Settled | None = None  # how that ended which the step had to wait for

    async def machine(self) -> "ToolMachine":
        """The conversation's machine, up. It is made when the first tool asks for it."""
        if self.parts.machines is None:
            raise ConflictError("machines.off", "There are no machines here: this server was set up without.")
        return await self.parts.machines.ensure(self)


class Tool(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """The JSON schema of its arguments: an object."""
        ...

    @property
    def runs(self) -> Runs:
        """Beside other calls of the same answer, or alone and in their order."""
        ...

    @property
    def is_idempotent(self) -> bool:
        """Whether `run` may be called again with the same effect id and does nothing twice."""
        ...

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult: ...

    async def interrupt(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        """A person has stopped the turn, or this step: end what still runs under the effect id. Returns soon, and what
        came of it; None: it was stopped, and nothing of it happens any more. Being cancelled is another thing: a worker
        that ends leaves what runs, for the next one to find."""
        ...
