"""What a turn is bound to: the port through which the loop asks for agents. Versions never change, so what is asked
once may be remembered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from outlive.base import NotFoundError
from outlive.loop.models.registry import default_model
from outlive.loop.state import Binding
from outlive.loop.tools import RUNS


@dataclass(frozen=True, slots=True)
class Persona:
    """An agent as a step needs it."""

    instructions: str
    tools: tuple[str, ...]
    environment: str | None = None


class Agents(Protocol):
    async def bind(self, agent: str | None, model: str | None) -> Binding:
        """The newest version of `agent` (None: the default one) and the model that it uses, unless `model` is asked
        for. Refused with one of our errors if there is none."""
        ...

    async def persona(self, bound: Binding) -> Persona:
        """The version of the agent that the turn was bound to."""
        ...


DEFAULT = "coder"
_INSTRUCTIONS = """You are a software engineer who works in a machine of your own: a Linux computer with the project in
/workspace. Look before you change anything, make the smallest change that does what was asked, and run what shows that
it works. Say briefly what you did."""


class OnlyCoder:
    """The one agent that is built in."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def bind(self, agent: str | None, model: str | None) -> Binding:
        if agent not in (None, DEFAULT):
            raise NotFoundError("agent.not_found", f"There is no agent {agent!r}.")
        return Binding(DEFAULT, 1, model or default_model(self._environ))

    async def persona(self, bound: Binding) -> Persona:
        return Persona(_INSTRUCTIONS, tuple(RUNS))
