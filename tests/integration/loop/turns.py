"""Turns for real: a Temporal server, a worker of the loop in this process, a pretend provider behind the real SDKs."""

import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from temporalio.client import Client

from eventually import eventually, eventually_sync
from outlive.base import ConversationId, TurnId, new_operation_id
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import Event
from outlive.loop.client import LoopClient
from outlive.loop.queues import LOOP
from outlive.loop.tools import ToolParts
from outlive.loop.tools.machine import ConversationMachines
from outlive.processes import temporal_server
from outlive.wiring.build import Parts, keep_broker, open_parts
from outlive.wiring.loop import WORKFLOWS, LoopParts, open_loop_parts
from outlive.wiring.loop_client import make_loop_client
from outlive.wiring.settings import Settings, read_settings
from outlive.wiring.temporal import connect_temporal
from outlive.wiring.temporal_worker import make_worker, run_until_shut, shut

WITHIN_S = 60.0
PERSON = "prin_" + "1" * 32


@contextmanager
def temporal_at(folder: Path) -> Iterator[str]:
    """A Temporal server of our own; its address."""
    folder.mkdir(parents=True, exist_ok=True)
    program, port = temporal_server.find_program(), temporal_server.choose_port(0)
    command = temporal_server._command(program, folder, port)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually_sync(lambda: temporal_server.is_listening(port), WITHIN_S)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


@dataclass(frozen=True)
class Stage:
    """A worker at work, and what tests do with it."""

    settings: Settings
    parts: Parts
    loop: LoopClient
    client: Client
    made: LoopParts

    async def converse(self, **given: Any) -> ConversationId:
        return (await self.parts.conversations.create(new_operation_id(), actor=PERSON, **given)).id

    async def record(self, conversation: ConversationId, text: str, model: str | None = None) -> TurnId:
        """A message that the loop is not told of."""
        sent = await self.parts.conversations.send(
            new_operation_id(), conversation, actor=PERSON, text=text, model=model
        )
        return sent.turn

    async def send(self, conversation: ConversationId, text: str, model: str | None = None) -> TurnId:
        turn = await self.record(conversation, text, model)
        await self.loop.submit(conversation, turn)
        return turn

    async def ask(self, text: str, model: str | None = None) -> tuple[ConversationId, list[Event]]:
        """A conversation of one turn, to its end."""
        conversation = await self.converse()
        turn = await self.send(conversation, text, model)
        return conversation, await self.ended(conversation, turn)

    async def events(self, conversation: ConversationId) -> list[Event]:
        """All of them. Very big ones come in more than one part."""
        events: list[Event] = []
        while part := await self.parts.conversations.read(conversation, len(events), 1_000):
            events += part
        return events

    async def ended(self, conversation: ConversationId, turn: TurnId, within_s: float = WITHIN_S) -> list[Event]:
        """All events, once the turn has ended."""

        async def is_over() -> bool:
            return any(
                event.type == "turn.finished" and event.turn == turn for event in await self.events(conversation)
            )

        try:
            await eventually(is_over, within_s)
        except AssertionError as error:
            for event in await self.events(conversation):
                error.add_note(f"{event.seq} {event.type} {event.data_json[:300]}")
            raise
        return await self.events(conversation)

    async def is_idle(self, conversation: ConversationId, *, turns: int) -> bool:
        """Whether so many turns have ended, and none is open."""
        ended = [event for event in await self.events(conversation) if event.type == "turn.finished"]
        return len(ended) == turns and (await self.parts.conversations.get(conversation)).turn is None

    async def has(self, conversation: ConversationId, *types: str) -> bool:
        return set(types) <= {event.type for event in await self.events(conversation)}


@asynccontextmanager
async def stage_at(
    home: Path,
    temporal: str,
    machines: Callable[[Conversations], ConversationMachines] | None = None,
    approvals: dict[str, str] | None = None,
    mcp: dict[str, Any] | None = None,
    **loop: Any,
) -> AsyncIterator[Stage]:
    given = {"home": home, "temporal": {"address": temporal}, "worker": {"grace_s": 0}, "loop": loop}
    settings = read_settings({**given, "approvals": approvals or {}, "mcp": mcp})
    async with (
        anyio.create_task_group() as group,
        open_parts(settings) as parts,
    ):
        await group.start(keep_broker, settings)
        client = await connect_temporal(settings, WITHIN_S)
        tools = ToolParts(
            parts.conversations, parts.artifacts, machines(parts.conversations) if machines is not None else None
        )
        async with (
            open_loop_parts(settings, parts, tools, client) as made,
            working(client, settings, made),
        ):

            async def connected() -> Client:
                return client

            await made.warm_up()  # imports an SDK: many seconds, where others work too
            yield Stage(settings, parts, make_loop_client(connected, parts.conversations.blobs), client, made)
        group.cancel_scope.cancel()


@asynccontextmanager
async def working(client: Client, settings: Settings, made: LoopParts) -> AsyncIterator[None]:
    worker = make_worker(client, LOOP, settings, workflows=WORKFLOWS, activities=made.activities, beat_s=0.3)
    async with anyio.create_task_group() as group:
        group.start_soon(run_until_shut, worker)
        try:
            yield
        finally:
            await shut(worker, 1.0)


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def data_of(events: list[Event], type: str) -> list[dict[str, Any]]:
    return [json.loads(event.data_json) for event in events if event.type == type]
