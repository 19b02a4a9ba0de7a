"""MCP servers that run as a command in the conversation's machine: one from the world, and one that misbehaves."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from eventually import eventually
from integration.loop.mcp.packing import packed
from integration.loop.tools.workshop import AGENT, machines_of
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, stage_at
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import (
    ConflictError,
    ConversationId,
    MachineId,
    new_effect_id,
    new_operation_id,
    new_step_id,
    new_turn_id,
)
from outlive.conversation.events import Event
from outlive.loop.agents import AgentDefinition
from outlive.loop.attaching import Attacher
from outlive.loop.tools import ToolContext, ToolParts
from outlive.loop.tools.mcp.server import McpServer
from outlive.loop.tools.mcp.tool import nth, open_way
from outlive.loop.tools.stopping import find_or_forestall
from outlive.machine.door import ExecRequest
from outlive.machine.node.node import Node
from outlive.testing.pretend_provider import PretendProvider

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

TIME = McpServer(
    name="time",
    command=("python3", "-m", "mcp_server_time", "--local-timezone", "UTC"),
    env={"PYTHONPATH": "/workspace/site"},
    timeout_s=300,
)
ODD = McpServer(name="odd", command=("python3", "/workspace/odd_server.py"), timeout_s=60)
ABSENT = McpServer(name="absent", command=("nowhere-at-all",))


@dataclass
class Room:
    stage: Stage
    machines: MachineRoom
    node: Node

    async def converse(self, *servers: McpServer, files: dict[str, bytes]) -> ConversationId:
        """A conversation whose machine has these files in its `/workspace`."""
        definition = AgentDefinition(
            name="-".join(each.name for each in servers), model=None, instructions="Use them.", tools=(), mcp=servers
        )
        await self.stage.parts.agents.apply(definition, by=PERSON)
        conversation = await self.stage.converse(agent=definition.name, environment="host")
        await self._equip(conversation)
        for path, content in files.items():
            await self._write(conversation, f"/workspace/{path}", content)
        return conversation

    async def _equip(self, conversation: ConversationId) -> None:
        conversations, records = self.stage.parts.conversations, self.machines.records
        machine = await machines_of(self.machines, self.node, conversations)._environments.create_machine(
            new_operation_id(), environment="host", owner=AGENT.id, conversation=conversation
        )
        await Attacher(conversations, self.machines.keeper, records).attach(conversation, machine, actor=PERSON)

    async def _write(self, conversation: ConversationId, path: str, content: bytes) -> None:
        async def whole() -> AsyncIterator[bytes]:
            for start in range(0, len(content), 65_536):
                yield content[start : start + 65_536]

        machine = await self.context(conversation).machine()
        await machine.use(lambda door, generation: door.write_file(machine.id, generation, path, whole()))

    def context(self, conversation: ConversationId) -> ToolContext:
        parts = self.stage.parts
        machines = machines_of(self.machines, self.node, parts.conversations)
        return ToolContext(
            parts=ToolParts(parts.conversations, parts.artifacts, machines),
            conversation=conversation,
            turn=new_turn_id(),
            step=new_step_id(),
            effect_id=new_effect_id(),
            operator=AGENT,
            say=lambda *_: None,
        )

    async def exec(self, conversation: ConversationId, command: str) -> str:
        machine = (await self.stage.parts.conversations.get(conversation)).machine
        assert machine is not None
        return (await self.machines.exec(MachineId(machine), command, timeout_s=120)).stdout

    async def say(self, conversation: ConversationId, text: str) -> list[Event]:
        """The events of a turn."""
        turn = await self.stage.send(conversation, text)
        return [event for event in await self.stage.ended(conversation, turn, 400) if event.turn == turn]

    async def result(self, conversation: ConversationId, name: str, **arguments: Any) -> dict[str, Any]:
        script = f"[[tool {name} {json.dumps(arguments)}]] [[say Done.]]"
        [finished] = data_of(await self.say(conversation, script), "tool.finished")
        return finished


@pytest.fixture
async def room(temporal: str, provider: PretendProvider, tmp_path: Path) -> AsyncIterator[Room]:
    (tmp_path / "machines").mkdir()
    async with (
        open_machine_room(tmp_path / "machines") as machines,
        machines.node() as node,
        stage_at(
            tmp_path / "home", temporal, lambda conversations: machines_of(machines, node, conversations)
        ) as stage,
    ):
        yield Room(stage, machines, node)


async def test_a_server_that_nobody_here_wrote_is_used_by_a_turn_in_a_real_machine(
    room: Room, provider: PretendProvider
) -> None:
    archive = await anyio.to_thread.run_sync(packed, "mcp-server-time")
    of = await room.converse(TIME, ABSENT, files={"site.tar": archive})
    assert await room.exec(of, "mkdir site && tar -xf site.tar -C site && echo unpacked") == "unpacked\n"
    converted = await room.result(
        of, "time__convert_time", source_timezone="Europe/Berlin", time="12:30", target_timezone="Asia/Tokyo"
    )
    assert converted["outcome"] == "finished", converted
    assert json.loads(converted["output"])["target"]["timezone"] == "Asia/Tokyo"
    refused = await room.result(of, "time__get_current_time", timezone="Nowhere/At_All")
    assert (refused["outcome"], "Nowhere/At_All" in refused["output"]) == ("failed", True)
    absent = await room.result(of, "absent__anything")
    assert (absent["outcome"], "'absent' cannot be used" in absent["output"]) == ("rejected", True)
    assert "exit code 127). It said: 'nowhere-at-all' did not start: No such file" in absent["output"]

    asked = [json.loads(provider.ledger.request(n) or b"") for n in (1, len(provider.calls))]
    for told in asked:
        assert [each["name"] for each in told["tools"]] == ["time__convert_time", "time__get_current_time"]
        assert "'absent' cannot be used now" in json.dumps(told["system"])
    await eventually(lambda: _is_gone(room, of, "mcp_server_time"), WITHIN_S)


async def test_whatever_a_server_does_the_call_has_an_end_that_is_told(room: Room, provider: PretendProvider) -> None:
    source = (Path(__file__).parent / "odd_server.py").read_bytes()
    of = await room.converse(ODD, files={"odd_server.py": source})
    [mangled, plain] = [
        (await room.result(of, name))["output"] for name in ("odd__tell_me_more-93a4080e", "odd__tell_me_more")
    ]
    assert (mangled, plain) == ("tell.me/more ['dev.outlive/effect']", "tell_me_more ['dev.outlive/effect']")
    told = json.loads(provider.ledger.request(1) or b"")
    names = [each["name"] for each in told["tools"]]
    assert len(names) == len(set(names)) == 100
    assert "odd__huge" not in names
    notes = json.dumps(told["system"])
    for why in ("their schemas are too long: 'huge'", "too many of them"):
        assert why in notes

    died = await room.result(of, "odd__die")
    assert (died["outcome"], "I am dying." in died["output"], "not called again" in died["output"]) == (
        "lost",
        True,
        True,
    )
    died = await room.result(of, "odd__die_reading")
    assert died["outcome"] == "lost"
    flooded = await room.result(of, "odd__flood")
    assert (flooded["outcome"], "16,777,216 bytes" in flooded["output"]) == ("lost", True)
    refused = await room.result(of, "odd__refuse")
    assert (refused["outcome"], "That I will not do." in refused["output"]) == ("failed", True)
    nothing = await room.result(of, "odd__nothing")
    assert nothing["outcome"] == "rejected"

    turn = await room.stage.send(of, "[[tool odd__hang {}]] [[say Never.]]")
    await eventually(lambda: _has_heard(room, of, "hang"), WITHIN_S)
    await room.stage.loop.interrupt(of, turn, by=PERSON, reason="enough")
    [hung] = [each for each in data_of(await room.stage.ended(of, turn), "tool.finished") if "interr" in each["output"]]
    assert hung["outcome"] == "lost"
    heard = (await room.exec(of, "cat ledger")).split()
    assert [heard.count(name) for name in ("die", "die_reading", "flood", "hang")] == [1, 3, 1, 1]
    await eventually(lambda: _is_gone(room, of, "odd_server"), WITHIN_S)


async def _is_gone(room: Room, of: ConversationId, program: str) -> bool:
    return program not in await room.exec(of, "ps aux")


async def _has_heard(room: Room, of: ConversationId, name: str) -> bool:
    return name in (await room.exec(of, "cat ledger")).split()


async def test_no_server_is_begun_for_a_call_that_a_person_has_stopped(room: Room) -> None:
    """By a worker that stood still before it began the server, or one more of it."""
    of = await room.converse(ODD, files={})
    context = room.context(of)
    machine = await context.machine()
    for attempts in (0, 1):
        context = replace(context, effect_id=new_effect_id())
        for number in range(1, attempts + 1):
            request = ExecRequest(effect_id=nth(context.effect_id, number), command="exit 1")
            await machine.caller.exec(machine.id, request)
        assert await find_or_forestall(context, nth(context.effect_id, attempts + 1)) is not None
        with pytest.raises(ConflictError, match="before it began"):
            async with open_way(ODD, context):
                pass
    await eventually(lambda: _is_gone(room, of, "odd_server"), WITHIN_S)
