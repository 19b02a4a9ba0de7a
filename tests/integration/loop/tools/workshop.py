"""A conversation with a real machine behind its tools: records, one node and one conversation, in one process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import JsonValue

from machine_rooms import MachineRoom, open_machine_room
from outlive.base import (
    ConversationId,
    EffectId,
    MachineId,
    PrincipalId,
    StepId,
    SystemClock,
    TurnId,
    derive,
    new_effect_id,
    new_operation_id,
    new_principal_id,
)
from outlive.conversation.backends.object_artifacts import ObjectArtifacts
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import Event, ToolCall
from outlive.governance.identity import rights_of
from outlive.loop.tools import ToolContext, ToolParts, ToolResult
from outlive.loop.tools.machine import ConversationMachines
from outlive.loop.tools.reach import ToolMachine
from outlive.loop.tools.registry import interrupt_tool, run_tool
from outlive.machine.caller import MachineCaller
from outlive.machine.environments import Environments
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.node import Node
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.terminal.status import Operator
from rooms import open_embedded_room

AGENT = Operator(id=PrincipalId("agent:coder"), name="coder", kind="agent", rights=rights_of("agent"))
PERSON = Operator(id=new_principal_id(), name="ada", kind="person", rights=rights_of("person"))
_CLOCK = SystemClock()


def machines_of(room: MachineRoom, node: Node, conversations: Conversations) -> ConversationMachines:
    """The machines of `conversations`, in `room` and on `node`."""
    environments = Environments(room.records.environments, room.keeper, NoBuilder(), room.objects.get, _CLOCK)
    caller = MachineCaller(room.keeper, room.records.effects, NodeDoor(node), _CLOCK)
    return ConversationMachines(
        conversations,
        environments,
        room.keeper,
        caller,
        NodeTerminalDoor(node),
        room.records,
        room.objects.get,
        _CLOCK,
    )


class NoBuilder:
    """Nothing is built here: the machines are made of this host."""

    async def build(self, digest: str, tries: int) -> None:
        raise AssertionError("nothing is to be built")


@dataclass
class Workshop:
    machines: MachineRoom
    node: Node
    conversations: Conversations
    artifacts: ObjectArtifacts
    said: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """As a worker that was started again: what was only in memory is gone."""
        self.doors = NodeTerminalDoor(self.node)
        self.parts = ToolParts(
            self.conversations, self.artifacts, machines_of(self.machines, self.node, self.conversations)
        )

    async def converse(self, metadata: dict[str, JsonValue] | None = None) -> ConversationId:
        """A conversation in the turn of `context`."""
        operation, actor = new_operation_id(), new_principal_id()
        made = await self.conversations.create(operation, actor=actor, environment="host", metadata=metadata)
        await self.conversations.send(operation, made.id, actor=actor, text="go on")
        return made.id

    def context(self, conversation: ConversationId, effect: EffectId | None = None) -> ToolContext:
        effect = effect or new_effect_id()
        return ToolContext(
            parts=self.parts,
            conversation=conversation,
            turn=TurnId(derive("turn", conversation)),
            step=StepId(derive("step", effect)),
            effect_id=effect,
            operator=AGENT,
            say=lambda text, stream: self.said.append((text, stream)),
        )

    async def call(
        self, conversation: ConversationId, name: str, effect: EffectId | None = None, **arguments: JsonValue
    ) -> ToolResult:
        call = ToolCall(id="call_1", name=name, arguments=arguments)
        return await run_tool(call, self.context(conversation, effect))

    async def interrupt(
        self,
        conversation: ConversationId,
        name: str,
        effect: EffectId,
        *,
        is_again: bool = False,
        **arguments: JsonValue,
    ) -> ToolResult:
        call = ToolCall(id="call_1", name=name, arguments=arguments)
        return await interrupt_tool(call, replace(self.context(conversation, effect), is_again=is_again))

    async def machine(self, conversation: ConversationId) -> ToolMachine:
        return await self.context(conversation).machine()

    async def exec(self, conversation: ConversationId, command: str) -> str:
        """What it prints, in the conversation's machine, past all tools."""
        attached = (await self.conversations.get(conversation)).machine
        assert attached is not None
        return (await self.machines.exec(MachineId(attached), command)).stdout

    async def events(self, conversation: ConversationId) -> list[Event]:
        return await self.conversations.read(conversation, 0, 1_000)

    async def types(self, conversation: ConversationId) -> list[str]:
        return [event.type for event in await self.events(conversation)]


@asynccontextmanager
async def open_workshop(home: Path) -> AsyncIterator[Workshop]:
    (home / "talk").mkdir()
    async with (
        open_embedded_room(home / "talk") as room,
        open_machine_room(home) as machines,
        machines.node() as node,
    ):
        yield Workshop(machines, node, room.conversations, ObjectArtifacts(machines.objects))
