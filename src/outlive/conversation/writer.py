"""Writing a step: the internal writer API, for the loop, for tests and for demos. Not public.

    step = await start_step(conversations, conversation, ..., attempt=1, kind="model", name="demo:")
    step.delta("Hel"); step.delta("lo")
    await step.seal(ModelResponded(text="Hello", model="demo:"))

There is nothing to close: a step that is never sealed stays open until its next attempt or the end of its turn.
Each append is one batch with a number of its own: an append that failed because a part was away may be called again
and is not doubled. A `fenced` error means that a newer attempt has started, or that the turn is not the open one (any
more): stop. A step of no turn at all is written while none is open.
"""

from typing import Literal

from outlive.base import ConversationId, CrashPoint, StepId, TurnId, reach, to_text
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import Delta, EventData, NewEvent, StepStarted
from outlive.conversation.log import Append, Appended, Writer


class StepWriter:
    """One attempt of one step. Made by `start_step`."""

    def __init__(
        self,
        conversations: Conversations,
        conversation: ConversationId,
        turn: TurnId | None,
        writer: Writer,
        actor: str,
    ) -> None:
        self._conversations = conversations
        self._conversation = conversation
        self._turn = turn
        self._writer = writer
        self._actor = actor
        self._offset = 0
        self.start = 0

    def delta(self, text: str, *, call: str | None = None, stream: str | None = None) -> None:
        """Show a piece of live output to whoever follows. `call` marks it as output of a tool."""
        if not text:
            return
        delta = Delta(
            start=self.start,
            offset=self._offset,
            turn=self._turn,
            step=self._writer.step,
            attempt=self._writer.attempt,
            type="model.delta" if call is None else "tool.output",
            # What a model streams may cut a surrogate pair in two; the seal has it whole.
            text=text.encode("utf-8", "replace").decode(),
            call=call,
            stream=stream,
            at=to_text(self._conversations.clock.now()),
            actor=self._actor,
        )
        self._offset = delta.end
        self._conversations.show(self._conversation, delta)
        reach(CrashPoint.STEP_AFTER_DELTA)

    async def record(self, *data: EventData, expect: int | None = None) -> Appended:
        """Append durable events of this attempt, as one batch; with `expect` only if that is still the head."""
        at = to_text(self._conversations.clock.now())
        appended = await self._conversations.append(
            Append(
                conversation=self._conversation,
                events=tuple(NewEvent(each, at) for each in data),
                key=self._writer.key,
                actor=self._actor,
                turn=self._turn,
                writer=self._writer,
                expect=expect,
            )
        )
        self._writer = self._writer._replace(batch=self._writer.batch + 1)
        return appended

    async def seal(self, data: EventData) -> Appended:
        """Append the result. From here on the step is never run again."""
        reach(CrashPoint.STEP_BEFORE_SEAL)
        return await self.record(data)


async def start_step(
    conversations: Conversations,
    conversation: ConversationId,
    *,
    turn: TurnId | None,
    step: StepId,
    attempt: int,
    kind: Literal["model", "tool", "compaction"],
    name: str,
    actor: str,
) -> StepWriter:
    """Start an attempt: from now on every older attempt of the step is fenced."""
    writer = StepWriter(conversations, conversation, turn, Writer(step, attempt, 0), actor)
    started = await writer.record(StepStarted(kind=kind, name=name))
    writer.start = started.events[0].seq
    reach(CrashPoint.STEP_AFTER_START)
    return writer
