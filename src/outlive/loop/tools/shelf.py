"""Tools that are not built in, for one agent: those that users' workers offer, and those of its MCP servers."""

from collections.abc import Sequence
from typing import NamedTuple

from outlive.base import ConversationId, EffectId, StepId, TurnId, derive
from outlive.loop.binding import Persona
from outlive.loop.tools.mcp.listings import McpTools
from outlive.loop.tools.own.shelf import KnownRuns, OwnTools
from outlive.loop.tools.port import Tool, ToolContext, ToolParts
from outlive.machine.terminal.status import Operator


class Told(NamedTuple):
    """What a model is told of them. `notes` is what it has to know besides: what cannot be used, and why."""

    tools: Sequence[Tool] = ()
    notes: Sequence[str] = ()


class Shelf:
    """An `OtherTools`. `runs` learns how they run beside others."""

    def __init__(self, parts: ToolParts, own: OwnTools, mcp: McpTools, runs: KnownRuns) -> None:
        self._parts = parts
        self._own = own
        self._mcp = mcp
        self._runs = runs

    async def tell(
        self, persona: Persona, conversation: ConversationId, turn: TurnId, step: StepId, operator: Operator
    ) -> Told:
        """For a model step, which may need the machine to know what a server in it offers."""
        own = list((await self._own.find(persona.tools)).values())
        if not persona.mcp:
            return Told(own)
        context = ToolContext(
            parts=self._parts,
            conversation=conversation,
            turn=turn,
            step=step,
            effect_id=EffectId(derive("eff", step)),
            operator=operator,
            say=lambda *_: None,
            environment=persona.environment,
        )
        tools, notes = await self._mcp.tell(persona, context)
        for each in tools:
            self._runs.note(each.name, each.runs)
        return Told([*own, *tools], notes)

    async def find(self, persona: Persona, name: str, context: ToolContext) -> Tool | None:
        if name in persona.tools:
            return (await self._own.find([name])).get(name)
        return await self._mcp.find(persona, name, context)
