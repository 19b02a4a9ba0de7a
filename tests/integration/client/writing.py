"""Turns with steps, live output and retries, written as a worker would: into the home of a running stack."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.lowlevel

from outlive.base import ConversationId, StepId, SystemClock, TurnId, new_effect_id, new_step_id, to_text
from outlive.conversation import Append, Conversations, EventData, NewEvent, StepWriter, start_step
from outlive.conversation.events import ModelResponded, ToolFinished, ToolRequested, TurnFinished, TurnStarted
from outlive.wiring.build import open_conversations
from outlive.wiring.settings import read_settings

PIECES = ("Grüße ", "aus dem\n", "Log: 🦉 ", "\x1b[31m", "\u2028", "Ende. ")


class Turn:
    def __init__(self, conversations: Conversations, conversation: str, turn: str) -> None:
        self._conversations = conversations
        self._conversation = ConversationId(conversation)
        self._turn = TurnId(turn)

    async def start(self, step: StepId, attempt: int, *, is_tool: bool = False) -> StepWriter:
        return await start_step(
            self._conversations,
            self._conversation,
            turn=self._turn,
            step=step,
            attempt=attempt,
            kind="tool" if is_tool else "model",
            name="shell" if is_tool else "demo:",
            actor="writer",
        )

    async def append(self, key: str, data: EventData) -> None:
        event = NewEvent(data, to_text(SystemClock().now()))
        await self._conversations.append(
            Append(self._conversation, (event,), key=f"{self._turn}/{key}", actor="writer", turn=self._turn)
        )

    async def begin(self) -> None:
        await self.append("started", TurnStarted(agent="a", version=1, model="demo:"))

    async def finish(self) -> None:
        await self.append("finished", TurnFinished(outcome="done"))

    async def answer(
        self,
        number: int,
        *,
        dead_attempts: int = 0,
        pieces: tuple[str, ...] = PIECES,
        before_seal: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """A model step; each dead attempt streams something and is given up."""
        step = new_step_id()
        for attempt in range(1, dead_attempts + 1):
            writer = await self.start(step, attempt)
            writer.delta(f"dead {attempt} of {number} ")
            await anyio.lowlevel.checkpoint()
        writer = await self.start(step, dead_attempts + 1)
        for piece in pieces:
            writer.delta(piece)
            await anyio.lowlevel.checkpoint()
        if before_seal is not None:
            await before_seal()
        await writer.seal(ModelResponded(text=f"{number}: {''.join(pieces)}", model="demo:"))

    async def tool(self, number: int) -> None:
        writer = await self.start(new_step_id(), 1, is_tool=True)
        call, effect = f"call_{number}", new_effect_id()
        await writer.record(ToolRequested(call=call, name="shell", arguments={"command": "ls"}, effect=effect))
        writer.delta("a\nb\n", call=call, stream="stdout")
        output = "x" * 100_000 if number % 5 == 0 else "a\nb\n"  # some of it goes by the object store
        await writer.seal(ToolFinished(call=call, effect=effect, outcome="finished", output=output, exit_code=0))


@asynccontextmanager
async def open_turn(home: Path, conversation: str, turn: str) -> AsyncIterator[Turn]:
    async with open_conversations(read_settings({"home": str(home)})) as conversations:
        yield Turn(conversations, conversation, turn)
