"""A writer that may be killed anywhere: run again, it reads the log and goes on. A child process of the crash tests.

python writing.py HOME CONVERSATION TURN STEP...
"""

import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio

from outlive.base import ConversationId, StepId, TurnId, to_text
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import EventData, ModelResponded, NewEvent, ToolFinished, ToolRequested, TurnFinished
from outlive.conversation.log import Append
from outlive.conversation.writer import start_step
from rooms import Room, open_embedded_room, open_scaled_room

BIG = "a result that is too big for a row " * 4_000
ACTOR = "prin_writer"


def result_of(number: int) -> EventData:
    """What seals step `number`: by turns a short answer, a tool's output, and an answer too big for a row."""
    if number % 3 == 1:
        return ToolFinished(call=f"call{number}", effect=f"eff{number}", outcome="finished", output="ok", exit_code=0)
    return ModelResponded(text=f"answer {number}" if number % 3 == 0 else f"{BIG}{number}", model="demo:")


async def write_step(
    conversations: Conversations, conversation: ConversationId, turn: TurnId, step: StepId, number: int
) -> None:
    log = await conversations.read(conversation, 0, 10_000)
    of_step = [event for event in log if event.step == step]
    if any(event.type in ("model.responded", "tool.finished") for event in of_step):
        return
    is_tool = number % 3 == 1
    writer = await start_step(
        conversations,
        conversation,
        turn=turn,
        step=step,
        attempt=1 + sum(event.type == "step.started" for event in of_step),
        kind="tool" if is_tool else "model",
        name="shell" if is_tool else "demo:",
        actor=ACTOR,
    )
    if is_tool:
        await writer.record(ToolRequested(call=f"call{number}", name="shell", arguments={}, effect=f"eff{number}"))
    for piece in ("some ", "text ", "is ", "shown "):
        writer.delta(piece, call=f"call{number}" if is_tool else None, stream="stdout" if is_tool else None)
        await anyio.lowlevel.checkpoint()
    await writer.seal(result_of(number))


def open_room(home: Path) -> AbstractAsyncContextManager[Room]:
    if "POSTGRES" in os.environ:
        return open_scaled_room(home, postgres=os.environ["POSTGRES"], redis=os.environ["REDIS"])
    return open_embedded_room(home, broker=False)


async def main(home: Path, conversation: ConversationId, turn: TurnId, steps: list[StepId]) -> None:
    async with open_room(home) as room:
        for number, step in enumerate(steps):
            await write_step(room.conversations, conversation, turn, step, number)
        finished = NewEvent(TurnFinished(outcome="done"), to_text(room.conversations.clock.now()))
        await room.conversations.append(Append(conversation, (finished,), key="the end", actor=ACTOR, turn=turn))


if __name__ == "__main__":
    home, conversation, turn, *steps = sys.argv[1:]
    anyio.run(main, Path(home), ConversationId(conversation), TurnId(turn), [StepId(step) for step in steps])
