"""What a turn is bound to: the port through which the loop asks for agents. Versions never change, so what is asked
once may be remembered."""

from dataclasses import dataclass
from typing import Protocol

from outlive.loop.budgets.amounts import Budget
from outlive.loop.compacting import RULES, CompactionRules
from outlive.loop.state import Binding
from outlive.loop.tools.mcp.server import McpServer


@dataclass(frozen=True, slots=True)
class Persona:
    """An agent as a step needs it."""

    instructions: str
    tools: tuple[str, ...]
    environment: str | None = None
    approve: frozenset[str] = frozenset()  # tools that are run only if a person approves
    approve_expires_s: float | None = None
    mcp: tuple[McpServer, ...] = ()
    budget: Budget | None = None
    fallbacks: tuple[str, ...] = ()  # models that stand in for its own, in this order, when that is away
    compaction: CompactionRules = RULES


class Agents(Protocol):
    async def bind(self, agent: str | None, model: str | None) -> Binding:
        """The newest version of `agent` (None: the default one) and the model that it uses, unless `model` is asked
        for. Refused with one of our errors if there is none."""
        ...

    async def persona(self, bound: Binding) -> Persona:
        """The version of the agent that the turn was bound to."""
        ...
