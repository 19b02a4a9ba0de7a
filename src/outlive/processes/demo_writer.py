"""The writer of `outlive demo`: a pretend model and a pretend tool, written with the internal writer API.

A process of its own, so that it can be killed. `first` writes two whole steps and begins the third, which it never
ends: it streams the half of an answer and waits to be killed. `second` makes the next attempt of that step and ends the
turn. The text is fixed and says of itself that no model wrote it.
"""

import argparse

import anyio

from outlive.base import ConversationId, StepId, SystemClock, TurnId, new_effect_id, to_text
from outlive.conversation import Append, Conversations, NewEvent, StepWriter, start_step
from outlive.conversation.events import (
    EventData,
    ModelResponded,
    ToolCall,
    ToolFinished,
    ToolRequested,
    TurnFinished,
    TurnStarted,
    Usage,
)
from outlive.wiring.build import open_conversations
from outlive.wiring.settings import read_settings

ACTOR = "demo"
MODEL = "demo:"
PACE_S = 0.08
SLOW_PACE_S = 0.15  # of the last answer: there is time to come back while it is going on
WAIT_FOR_DEATH_S = 30.0

PLAN = ("(A pretend ", "model speaks.) ", "I look into ", "the project ", "first.")
OUTPUT = ("README.md\n", "src\n", "tests\n")
HALF_ANSWER = (
    "(Pretend model, attempt 1.) ",
    "There are ",
    "README.md, ",
    "src and tests. ",
    "You will never ",
    "read the end ",
    "of this sentence, ",
    "for its writer ",
    "is being ki",
)
ANSWER = (
    "(Pretend model, attempt 2.) ",
    "Three: ",
    "README.md, ",
    "src and tests. ",
    "And when ",
    "your laptop closes ",
    "nothing is lost: ",
    "the log keeps ",
    "every event, ",
    "whoever comes back ",
    "gets exactly ",
    "what it has ",
    "not seen, ",
    "and nobody is shown ",
    "the words of ",
    "a dead attempt.",
)


class Script:
    """One turn with three steps: an answer that calls a tool, the tool, and the last answer."""

    def __init__(
        self, conversations: Conversations, conversation: ConversationId, turn: TurnId, steps: list[StepId]
    ) -> None:
        self._conversations = conversations
        self._conversation = conversation
        self._turn = turn
        self._plan, self._tool, self._answer = steps

    async def first(self) -> None:
        await self._append("started", TurnStarted(agent="demo", version=1, model=MODEL))
        call = ToolCall(id="call_1", name="shell", arguments={"command": "ls"})
        await self._say(self._plan, 1, PLAN, tool_calls=[call])
        await self._use_tool(call)
        step = await self._start(self._answer, 1, "model", MODEL)
        await _stream(step, HALF_ANSWER)
        await anyio.sleep(WAIT_FOR_DEATH_S)

    async def second(self) -> None:
        await self._say(self._answer, 2, ANSWER)
        await self._append("finished", TurnFinished(outcome="done"))

    async def _say(
        self, step: StepId, attempt: int, pieces: tuple[str, ...], tool_calls: list[ToolCall] | None = None
    ) -> None:
        writer = await self._start(step, attempt, "model", MODEL)
        await _stream(writer, pieces, pace_s=PACE_S if attempt == 1 else SLOW_PACE_S)
        reason = "tool_use" if tool_calls else "end_turn"
        said = "".join(pieces)
        usage = Usage(input_tokens=0, output_tokens=0)
        await writer.seal(
            ModelResponded(text=said, tool_calls=tool_calls or [], model=MODEL, usage=usage, stop_reason=reason)
        )

    async def _use_tool(self, call: ToolCall) -> None:
        writer = await self._start(self._tool, 1, "tool", call.name)
        effect = new_effect_id()
        await writer.record(ToolRequested(call=call.id, name=call.name, arguments=call.arguments, effect=effect))
        await _stream(writer, OUTPUT, call=call.id)
        await writer.seal(
            ToolFinished(call=call.id, effect=effect, outcome="finished", output="".join(OUTPUT), exit_code=0)
        )

    async def _start(self, step: StepId, attempt: int, kind: str, name: str) -> StepWriter:
        return await start_step(
            self._conversations,
            self._conversation,
            turn=self._turn,
            step=step,
            attempt=attempt,
            kind="model" if kind == "model" else "tool",
            name=name,
            actor=ACTOR,
        )

    async def _append(self, key: str, data: EventData) -> None:
        event = NewEvent(data, to_text(SystemClock().now()))
        key = f"demo/{self._turn}/{key}"
        await self._conversations.append(Append(self._conversation, (event,), key=key, actor=ACTOR, turn=self._turn))


async def _stream(writer: StepWriter, pieces: tuple[str, ...], call: str | None = None, pace_s: float = PACE_S) -> None:
    for piece in pieces:
        await anyio.sleep(pace_s)
        writer.delta(piece, call=call, stream="stdout" if call else None)


async def _run(arguments: argparse.Namespace) -> None:
    async with open_conversations(read_settings()) as conversations:
        script = Script(
            conversations,
            ConversationId(arguments.conversation),
            TurnId(arguments.turn),
            [StepId(step) for step in arguments.steps],
        )
        await (script.first() if arguments.part == "first" else script.second())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("first", "second"))
    parser.add_argument("conversation")
    parser.add_argument("turn")
    parser.add_argument("steps", nargs=3)
    anyio.run(_run, parser.parse_args())


if __name__ == "__main__":
    main()
