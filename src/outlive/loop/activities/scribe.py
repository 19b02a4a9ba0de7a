"""Writing into the log for the loop: what is appended is in the view at once, so that the next plan sees it."""

from collections.abc import Callable
from typing import Literal, Protocol

from temporalio import activity

from outlive.base import (
    BrokenError,
    ConflictError,
    ConversationId,
    CrashPoint,
    NotFoundError,
    PrincipalId,
    StepId,
    TurnId,
    derive,
    reach,
    to_text,
)
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import EventData, NewEvent, StepStarted, TurnRecovered
from outlive.conversation.log import Append, Writer
from outlive.conversation.writer import StepWriter
from outlive.loop.state import Binding, OpenTurn
from outlive.loop.views import View, Views
from outlive.machine.terminal.status import Operator

# Somebody wrote first: look again.
MOVED = frozenset({"append.moved", "append.key_reused", "turn.over"})
StepKind = Literal["model", "tool", "compaction"]

_GONE_ON = 1  # the batch of an attempt after the one that began it
_GONE = "The attempt before it ended without a word: its worker is gone, or was told to stop."


def actor_of(bound: Binding | None) -> str:
    """Who wrote it, as the log says."""
    return f"agent:{bound.agent}" if bound is not None else "loop"


def operator_of(conversation: ConversationId, bound: Binding) -> Operator:
    """In whose name tools act: the agent, in this conversation."""
    return Operator(
        id=PrincipalId(derive("prin", conversation)),
        name=bound.agent,
        kind="agent",
        rights=frozenset({"observe", "type"}),
    )


class Family(Protocol):
    """Who has to know what becomes of a conversation's turns: see `subagents/family.py`."""

    async def mend(self, view: View) -> None: ...

    def show(self, view: View) -> None: ...


class Scribe:
    """`on_end` is told of every turn that ends here."""

    def __init__(
        self,
        conversations: Conversations,
        views: Views,
        on_end: Callable[[View], None] | None = None,
        family: Family | None = None,
    ) -> None:
        self.conversations = conversations
        self.views = views
        self._on_end = on_end
        self._family = family

    async def mend(self, view: View) -> None:
        """Tell whoever has to know of what has ended; again: nothing happens."""
        if self._family is not None:
            await self._family.mend(view)

    def _show(self, view: View) -> None:
        if self._family is not None:
            self._family.show(view)

    async def look(self, conversation: ConversationId, is_due: Callable[[OpenTurn | None], bool]) -> View:
        """The conversation, for a step. When it is tried for the first time, and was due when we last looked, that is
        enough: beginning it is refused if somebody else began it, sealed it or ended the turn."""
        kept = self.views.recall(conversation) if activity.info().attempt == 1 else None
        return kept if kept is not None and is_due(kept.state.turn) else await self.views.catch_up(conversation)

    async def say(
        self, view: View, turn: TurnId, key: str, actor: str, *news: EventData, expect: int | None = None
    ) -> None:
        """Append something that belongs to no step. The same key again changes nothing."""
        at = to_text(self.conversations.clock.now())
        appended = await self.conversations.append(
            Append(
                view.conversation,
                tuple(NewEvent(each, at) for each in news),
                key=key,
                actor=actor,
                turn=turn,
                expect=expect,
            )
        )
        await self.views.take(view, appended.events)

    async def put_words(self, text: str) -> str:
        """What somebody else said, where it can be read again: only its name passes through Temporal."""
        return await self.conversations.blobs.put(text.encode("utf-8", "replace"))

    async def read_words(self, name: str | None) -> str | None:
        """What was put there. None if it is gone: a turn ends without it."""
        if name is None:
            return None
        try:
            return (await self.conversations.blobs.get(name)).decode("utf-8", "replace")
        except (NotFoundError, BrokenError):
            return None

    async def start(
        self,
        view: View,
        turn: OpenTurn,
        step: StepId,
        kind: StepKind,
        name: str,
        *more: EventData,
        expect: int | None = None,
    ) -> StepWriter:
        """Begin the next attempt of a step, with what belongs to its beginning, in one batch. One that is not the first
        says why, unless the one before did. With `expect` it is begun only if that is still the head, and not if
        somebody has begun it already: `append.moved`, or another of `MOVED`."""
        attempt = turn.attempts.get(step, 0) + 1
        news: list[EventData] = [StepStarted(kind=kind, name=name)]
        if attempt > 1 and not view.has_recovery(step, attempt):
            news.append(TurnRecovered(what="step_retried", step=step, attempt=attempt, reason=_GONE))
        writer = StepWriter(
            self.conversations, view.conversation, turn.id, Writer(step, attempt, 0), actor_of(turn.bound)
        )
        started = await writer.record(*news, *more, expect=expect)
        if expect is not None and started.is_repeat:
            raise ConflictError("append.moved", f"Attempt {attempt} of {step!r} was begun by another worker.")
        writer.start = started.events[0].seq
        await self.views.take(view, started.events)
        self._show(view)
        reach(CrashPoint.STEP_AFTER_START)
        return writer

    def go_on(self, view: View, turn: OpenTurn, step: StepId) -> StepWriter:
        """The attempt of a step that waited in the log."""
        writer = Writer(step, turn.attempts[step], _GONE_ON)
        return StepWriter(self.conversations, view.conversation, turn.id, writer, actor_of(turn.bound))

    async def seal(self, view: View, writer: StepWriter, data: EventData) -> None:
        appended = await writer.seal(data)
        await self.views.take(view, appended.events)
        self._show(view)

    async def end(self, view: View, turn: TurnId, actor: str, *news: EventData, expect: int | None = None) -> None:
        """End the turn with `news`. Where somebody wrote first, and with `expect` that is anybody at all, it is not
        ended here, and the view has what was written."""
        reach(CrashPoint.TURN_BEFORE_END)
        try:
            await self.say(view, turn, f"end/{turn}", actor, *news, expect=expect)
        except ConflictError as error:
            if error.code not in MOVED:
                raise
            await self.views.refresh(view)
            return
        reach(CrashPoint.TURN_AFTER_END)
        if self._on_end is not None:
            self._on_end(view)

    async def say_retry(self, view: View, turn: OpenTurn, step: StepId, attempt: int, reason: str) -> None:
        """Say at once why `attempt` will be needed: it may be long until it begins."""
        news = TurnRecovered(what="step_retried", step=step, attempt=attempt, reason=reason)
        await self.say(view, turn.id, f"retried/{step}/{attempt}", actor_of(turn.bound), news)
