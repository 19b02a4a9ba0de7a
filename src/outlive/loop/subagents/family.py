"""Subagents and those who began them: beginning one, telling that one ended, stopping those that nobody waits for.

Rule 1: what counts is in the two logs. `subagent.started` is in the parent's log once the subagent is made, and before
        its turn is run. `subagent.finished` (of a detached one with its report, in the same batch) follows from the end
        of its turn, under a key of its own: whoever notices says it, and it is said once.
Rule 2: whoever ends a subagent's turn tells its parent, in an activity that is tried until it was (`mend`). Whoever
        ends a turn stops the attached ones that it began. What is lost on the way, the sweeper finds (`look_after`).
"""

import logging
from collections import OrderedDict
from dataclasses import replace

from outlive.base import (
    ConflictError,
    ConversationId,
    CrashPoint,
    FencedError,
    MessageId,
    OutliveError,
    TurnId,
    derive,
    reach,
    to_text,
)
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import Delta, EventData, MessageSent, NewEvent, SubagentFinished, SubagentStarted
from outlive.conversation.log import Append
from outlive.loop.activities.scribe import actor_of
from outlive.loop.client import LoopClient
from outlive.loop.state import Child, OpenTurn
from outlive.loop.subagents.link import (
    Ended,
    Kind,
    Link,
    child_of,
    ending_of,
    link_in,
    link_of,
    operation_of,
    progress_of,
    refusal_of,
    told,
    turn_of,
)
from outlive.loop.subagents.starting import make_child
from outlive.loop.tools.output import bounded
from outlive.loop.tools.port import LATER, ToolContext, ToolResult
from outlive.loop.tools.results import shown
from outlive.loop.views import View, Views

_BY = "loop"  # who stops a subagent
_WHY = "Nobody waits for this subagent any more."
_TOLD = 1_024  # ends that this process remembers to have told

_log = logging.getLogger(__name__)


class Subagents:
    def __init__(self, conversations: Conversations, views: Views, loop: LoopClient, report_bytes: int) -> None:
        self._conversations = conversations
        self._views = views
        self._loop = loop
        self._report_bytes = report_bytes
        self._told: OrderedDict[ConversationId, None] = OrderedDict()

    # ── for the tool ──

    async def run(
        self, context: ToolContext, prompt: str, agent: str | None, machine: Kind, *, detached: bool
    ) -> ToolResult:
        """Begin it; once it has ended, what came of it. Until then, `LATER`."""
        view = await self._views.catch_up(context.conversation)
        turn, child = view.state.turn, child_of(context.step)
        if turn is None or turn.id != context.turn or turn.bound is None or turn.answer is None:
            raise FencedError("turn.over", f"Turn {context.turn!r} is over. Stop.")
        mine = next((call.child for call in turn.answer.calls if call.step == context.step), None)
        if mine is not None and mine.outcome is not None:
            return await self._result(context, child)
        parent = link_in(view.conversation, view.events)
        if refusal := refusal_of(parent, view.state.children, turn.answer, context.step):
            return ToolResult("rejected", refusal)
        link = _link(view, turn, context, machine, detached=detached, depth=parent.depth + 1 if parent else 1)
        bound = replace(turn.bound, model=turn.model or turn.bound.model)
        await make_child(self._conversations, context, link, bound, prompt, agent)
        reach(CrashPoint.SUBAGENT_AFTER_CHILD)
        await self._say_started(view, turn, link, child)
        reach(CrashPoint.SUBAGENT_AFTER_START)
        await self._submit(child, turn_of(child))
        return _detached(child) if detached else LATER

    async def stop(self, context: ToolContext) -> ToolResult | None:
        """The step was stopped while it was at it. What came of it, if the subagent had ended by itself or goes on."""
        child = child_of(context.step)
        if await self._conversations.find_made(operation_of(context.step)) is None:
            return None
        made = await self._views.catch_up(child)
        link = link_in(child, made.events)
        if link is None:
            return None
        if link.detached:
            is_begun = any(event.type == "message.sent" for event in made.events)
            return _detached(child) if is_begun else None
        if ending_of(made.events, turn_of(child)) is not None:
            return await self._result(context, child)
        await self._interrupt(child)
        return None

    # ── for whoever looks ──

    async def mend(self, view: View, *, is_own: bool = True) -> None:
        """Tell whoever waits for this conversation, and see to those that it began. `is_own`: it is the turn's own
        run that asks, which need not be told of what is found."""
        link = link_in(view.conversation, view.events)
        if link is not None:
            await self._tell(view, link)
        if children := view.state.children:
            for child in children:
                await self._see_to(view, child)
            await self._views.refresh(view)
        turn = view.state.turn
        calls = turn.answer.calls if turn is not None and turn.answer is not None else ()
        if not is_own and any(call.outcome is None and call.child and call.child.outcome for call in calls):
            await self._submit(view.conversation)

    async def look_after(self, conversation: ConversationId) -> None:
        """A turn of it is open, and quiet. One that nobody waits for any more is stopped."""
        found = await self._conversations.get(conversation)
        link = link_of(conversation, found.metadata)
        if link is not None and not link.detached and found.turn == turn_of(conversation):
            parent = await self._conversations.get(link.conversation)
            if parent.turn != link.turn:
                await self._interrupt(conversation)
        if found.state == "running":
            await self.mend(await self._views.catch_up(conversation), is_own=False)

    def show(self, view: View) -> None:
        """What a subagent does, in short, as live output of the step that waits for it."""
        link = link_in(view.conversation, view.events)
        if link is None or link.detached:
            return
        offset, line = progress_of(view.events)
        if not line:
            return
        self._conversations.show(
            link.conversation,
            Delta(
                start=link.start,
                offset=offset,
                turn=link.turn,
                step=link.step,
                attempt=link.attempt,
                type="tool.output",
                text=line,
                call=link.call,
                stream="stdout",
                at=to_text(self._conversations.clock.now()),
                actor=_actor(view.conversation),
            ),
        )

    # ── the two logs ──

    async def _say_started(self, view: View, turn: OpenTurn, link: Link, child: ConversationId) -> None:
        started = SubagentStarted(conversation=child, step=link.step, detached=link.detached, machine=link.machine)
        try:
            await self._append(view.conversation, f"subagent/{child}/started", actor_of(turn.bound), turn.id, started)
        except FencedError:
            await self._interrupt(child)
            raise
        await self._views.refresh(view)

    async def _tell(self, view: View, link: Link, *, is_heard: bool = False) -> None:
        """Say in the parent's log that the subagent has ended, if it has. `is_heard`: the parent itself asks."""
        child = view.conversation
        ended = ending_of(view.events, turn_of(child))
        if ended is None or child in self._told:
            return
        reach(CrashPoint.SUBAGENT_BEFORE_TELL)
        finished = SubagentFinished(conversation=child, outcome=ended.outcome)
        key, opens = f"subagent/{child}/finished", TurnId(derive("turn", child, 1))
        if link.detached:
            try:
                report = MessageSent(message=MessageId(derive("msg", child, 1)), text=self._report(child, ended))
                await self._append(link.conversation, key, _actor(child), opens, finished, report)
            except ConflictError as error:
                if error.code != "conversation.archived":
                    raise
                await self._append(link.conversation, key, _actor(child), link.turn, finished)
        else:
            await self._append(link.conversation, key, _actor(child), link.turn, finished)
        parent = await self._conversations.get(link.conversation)
        if not is_heard and parent.turn is not None and (link.detached or parent.turn == link.turn):
            await self._submit(parent.id, parent.turn if parent.turn == opens else None)
        self._told[child] = None
        while len(self._told) > _TOLD:
            self._told.popitem(last=False)

    async def _see_to(self, view: View, child: Child) -> None:
        turn = view.state.turn
        found = await self._conversations.get(child.conversation)
        if found.turn != turn_of(child.conversation):
            of = await self._views.catch_up(child.conversation)
            if (link := link_in(of.conversation, of.events)) is not None:
                await self._tell(of, link, is_heard=turn is not None and turn.id == child.turn)
        elif not child.detached and not _is_awaited(turn, child):
            await self._interrupt(child.conversation)

    def _report(self, child: ConversationId, ended: Ended) -> str:
        part = bounded(told(ended), self._report_bytes)
        more = "" if part.is_whole else " (cut; whole in its own conversation)"
        return f"[report of subagent {child}{more}]\n{part.text}"

    async def _result(self, context: ToolContext, child: ConversationId) -> ToolResult:
        view = await self._views.catch_up(child)
        ended = ending_of(view.events, turn_of(child))
        if ended is None:
            return ToolResult("lost", f"What came of subagent {child} is unknown.")
        text, blob = await shown(context, told(ended), f"subagent {child}")
        return ToolResult("finished" if ended.outcome == "done" else "failed", text, blob=blob)

    async def _append(self, conversation: ConversationId, key: str, actor: str, turn: TurnId, *news: EventData) -> None:
        at = to_text(self._conversations.clock.now())
        events = tuple(NewEvent(each, at) for each in news)
        await self._conversations.append(Append(conversation, events, key=key, actor=actor, turn=turn))

    # ── the loop ──

    async def _submit(self, conversation: ConversationId, turn: TurnId | None = None) -> None:
        try:
            await self._loop.submit(conversation, turn)
        except OutliveError as error:
            _log.warning("a turn was not told: %s", error.message, extra={"conversation": conversation})

    async def _interrupt(self, child: ConversationId) -> None:
        try:
            await self._loop.interrupt(child, turn_of(child), by=_BY, reason=_WHY, is_awaited=False)
        except OutliveError as error:
            _log.warning("a subagent was not stopped: %s", error.message, extra={"conversation": child})


def _is_awaited(turn: OpenTurn | None, child: Child) -> bool:
    """Whether a call of the open turn waits for it: not if that was stopped, for a message, say."""
    if turn is None or turn.id != child.turn or turn.answer is None:
        return False
    calls = [call for call in turn.answer.calls if call.child is not None and call.outcome is None]
    return any(call.child is not None and call.child.conversation == child.conversation for call in calls)


def _detached(child: ConversationId) -> ToolResult:
    return ToolResult("finished", f"Subagent {child} began. Its report will come as a message.")


def _actor(child: ConversationId) -> str:
    return f"subagent:{child}"


def _link(view: View, turn: OpenTurn, context: ToolContext, machine: Kind, *, detached: bool, depth: int) -> Link:
    of_step = [event for event in view.events if event.step == context.step]
    starts = [event for event in of_step if event.type == "step.started"]
    requested = next(event for event in reversed(of_step) if event.type == "tool.requested")
    return Link(
        conversation=view.conversation,
        turn=turn.id,
        step=context.step,
        call=requested.data["call"],
        start=starts[-1].seq,
        attempt=starts[-1].attempt or 1,
        detached=detached,
        machine=machine,
        depth=depth,
    )
