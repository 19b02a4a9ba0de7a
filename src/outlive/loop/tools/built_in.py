"""What the built-in tools have in common: arguments of a shape, one class each, and nothing done twice."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

from pydantic import JsonValue

from outlive.conversation.events import ToolCall
from outlive.loop.tools.arguments import Arguments, parse, schema_of
from outlive.loop.tools.facts import RUNS, Runs
from outlive.loop.tools.port import ToolContext, ToolResult
from outlive.loop.tools.stopping import UNKNOWN

A = TypeVar("A", bound=Arguments)


class BuiltIn(ABC, Generic[A]):
    """A `Tool`. What it does is in `act`; the arguments are checked before."""

    name: ClassVar[str]
    description: ClassVar[str]
    arguments: type[A]
    is_idempotent: ClassVar[bool] = True
    is_changing: ClassVar[bool] = False  # something that a person would miss, or find twice

    @cached_property
    def parameters(self) -> dict[str, JsonValue]:
        return schema_of(self.arguments)

    @property
    def runs(self) -> Runs:
        return RUNS.get(self.name, "in_turn")

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        arguments = parse(self.arguments, call)
        if isinstance(arguments, ToolResult):
            return arguments
        return await self.act(arguments, context)

    @abstractmethod
    async def act(self, arguments: A, context: ToolContext) -> ToolResult: ...

    async def interrupt(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        """Nothing of it goes on by itself. What an attempt before this one may have changed is unknown."""
        return ToolResult("lost", UNKNOWN) if context.is_again and self.is_changing else None
