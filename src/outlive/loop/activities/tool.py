"""A tool step: requested in the log with its effect id before anything is done, run, and sealed with its outcome.

Rule 1: every attempt of a step has the same effect id: a tool finds what an attempt before it did. What cannot be found
        is lost, and never done again.
Rule 2: whatever a call is, it gets an outcome that the model is told. What is away is tried again for a while.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import anyio
from temporalio import activity

from outlive.base import ConflictError, CrashPoint, FencedError, OutliveError, StepId, TurnId, reach, to_text
from outlive.conversation.events import Event, ToolCall, ToolFinished, ToolRequested
from outlive.conversation.writer import StepWriter
from outlive.loop.activities.beating import STOP_WITHIN_S, Progress, run_beating
from outlive.loop.activities.budget import find_room
from outlive.loop.activities.holding import due_call, find_call, settle
from outlive.loop.activities.hurrying import unless_hurried
from outlive.loop.activities.scribe import MOVED, Scribe, actor_of, operator_of
from outlive.loop.binding import Agents, Persona
from outlive.loop.budgets import room_for_tool
from outlive.loop.failures import to_failure
from outlive.loop.holds import Settled, effect_of
from outlive.loop.plan import Plan
from outlive.loop.replays import Replays
from outlive.loop.state import Call, OpenTurn, TurnState
from outlive.loop.tasks import RUN_TOOL, ToolTask
from outlive.loop.tools import LATER, Tool, ToolContext, ToolParts, ToolResult
from outlive.loop.tools.registry import BUILT_IN, interrupt_tool, run_tool
from outlive.loop.tools.shelf import Shelf
from outlive.loop.tools.stopping import NOT_BEGUN, UNKNOWN
from outlive.loop.tools.waiting import commented, refused
from outlive.loop.views import View

ATTEMPTS = 10  # while what the tool needs is away; then nobody knows what came of it
RETRY_FIRST_S, RETRY_MOST_S = 0.5, 15.0
_TRIES = 50  # while others write to the same conversation
_STOP_TOOL_S = STOP_WITHIN_S - 1.0  # leaves time to seal the step
_KEPT_CHARACTERS = 8_192  # of live output, for a result that was interrupted


class _At(NamedTuple):
    """One attempt of a step at work."""

    view: View
    writer: StepWriter
    attempt: int
    call: ToolCall
    context: ToolContext
    said: "_Said"
    other: Tool | None  # the one that is called, if it is not built in


class ToolActivities:
    def __init__(self, scribe: Scribe, agents: Agents, parts: ToolParts, others: Shelf | None = None) -> None:
        self._scribe = scribe
        self._others = others
        self._agents = agents
        self._parts = parts
        self._replays = Replays(parts.conversations)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.run_tool,)

    @activity.defn(name=RUN_TOOL)
    async def run_tool(self, task: ToolTask) -> Plan:
        progress = Progress()
        begun: list[_At] = []

        async def take() -> Plan:
            view = await self._scribe.look(
                task.conversation, lambda turn: due_call(turn, task.turn, task.tool.step) is not None
            )
            turn = view.state.turn
            due = due_call(turn, task.turn, task.tool.step)
            if turn is None or due is None or not _may_run(view.state, due):
                return self._scribe.views.decide(view)
            return await self._attempt(view, turn, due, progress, begun)

        async def stop() -> None:
            for at in begun:
                await self._stop(at)

        return await run_beating(take, progress, stop)

    async def _attempt(self, view: View, turn: OpenTurn, due: Call, progress: Progress, begun: list[_At]) -> Plan:
        assert turn.bound is not None
        assert turn.answer is not None
        attempt = turn.attempts.get(due.step, 0) + 1
        call = find_call(view, turn.answer, due)
        effect = effect_of(due.step)
        try:
            replayed = await self._replays.answer(view.events, turn.id, turn.answer, due)
            if replayed is not None and replayed.parted is not None:
                await self._scribe.say(view, turn.id, f"parted/{turn.id}", actor_of(turn.bound), replayed.parted)
                if replayed.finish is not None and not view.state.waiting:
                    return Plan(conversation=view.conversation, turn=turn.id, seq=view.seq, finish=replayed.finish)
            persona = await self._agents.persona(turn.bound)
            settled = None  # of a call whose result is in a recording there is nothing to wait for
            if replayed is None or replayed.result is None:
                if not await self._has_room(view, turn.id, due, persona):
                    return self._scribe.views.decide(view)
                settled = await settle(self._scribe, view, turn.id, due.step, persona)
                if settled is None:
                    return self._scribe.views.decide(view)
            requested = ToolRequested(call=call.id, name=call.name, arguments=call.arguments, effect=effect)
            writer = await self._start(view, turn, due, requested)
            if writer is None:
                return self._scribe.views.decide(view)
            reach(CrashPoint.TOOL_AFTER_REQUEST)
            said = _Said(writer, call.id, progress)
            context = ToolContext(
                parts=self._parts,
                conversation=view.conversation,
                turn=turn.id,
                step=due.step,
                effect_id=effect,
                operator=operator_of(view.conversation, turn.bound),
                say=said.say,
                environment=persona.environment,
                is_again=due.is_requested,
                machines=machines_since(view.events, due.step),
                settled=settled,
            )
            result = replayed.result if replayed is not None else None
            other = await self._find_other(persona, call.name, context) if result is None else None  # it may be asked
            at = _At(view, writer, attempt, call, context, said, other)
            begun.append(at)
            if result is None:
                result = await self._run_or_stop(at, persona, due)
                result = replayed.told(result) if replayed is not None else result
            begun.clear()
            if result is LATER:
                await self._scribe.views.refresh(view)
                return self._scribe.views.decide(view)
            reach(CrashPoint.TOOL_BEFORE_SEAL)
            await self._seal(at, result)
            reach(CrashPoint.TOOL_AFTER_SEAL)
        except OutliveError as error:
            await self._scribe.views.refresh(view)
            if due_call(view.state.turn, turn.id, due.step) is not None:
                await self._say_retry(view, turn, due, attempt, error)
        return self._scribe.views.decide(view)

    async def _has_room(self, view: View, turn: TurnId, due: Call, persona: Persona) -> bool:
        budget = persona.budget
        if budget is None or due.is_requested:  # what was begun is ended
            return True
        room = partial(room_for_tool, budget, n=due.n)
        return (await find_room(self._scribe, view, turn, persona, room))[0]

    async def _start(self, view: View, turn: OpenTurn, due: Call, requested: ToolRequested) -> StepWriter | None:
        """Begin it, at the head at which it is due. None: it is not any more. A message may have come that it is left
        undone for, and the model have been told so; or another worker is at it."""
        if due.child is not None:  # what it waited for is over: the attempt that began it goes on
            return self._scribe.go_on(view, turn, due.step)
        for _ in range(_TRIES):
            now, call = view.state.turn, due_call(view.state.turn, turn.id, due.step)
            if now is None or call is None or not _may_run(view.state, call) or self._is_held(view, call):
                return None
            if now.attempts.get(due.step, 0) != turn.attempts.get(due.step, 0):
                return None
            try:
                return await self._scribe.start(view, now, due.step, "tool", due.name, requested, expect=view.seq)
            except ConflictError as error:
                if error.code not in MOVED:
                    raise
                await self._scribe.views.refresh(view)
        raise ConflictError("append.moved", "The conversation is written to all the time; the step is tried again.")

    def _is_held(self, view: View, call: Call) -> bool:
        """Whether it has to wait after all: the message that ended its waiting may have been withdrawn."""
        now, state = to_text(self._scribe.conversations.clock.now()), view.state
        return not state.is_hurried and not call.is_free(now, is_spoken_to=bool(state.waiting))

    async def _run_or_stop(self, at: _At, persona: Persona, due: Call) -> ToolResult:
        """What came of it. If a message is to be taken at once, it is stopped, or not begun."""

        def is_outrun(state: TurnState) -> bool:
            return state.is_hurried and (due.hold is None or not due.hold.yields)  # that is ended by any message

        if is_outrun(at.view.state):
            return await self._interrupted(at) if due.is_requested else ToolResult("rejected", NOT_BEGUN)
        result = await unless_hurried(
            self._scribe,
            at.view,
            is_outrun,
            lambda: self._run_if_approved(at, persona, was_begun=due.is_requested),
        )
        return result or await self._interrupted(at)

    async def _run_if_approved(self, at: _At, persona: Persona, *, was_begun: bool) -> ToolResult:
        """What came of it; of a tool that a person has to approve of, only if one did."""
        settled = at.context.settled or Settled()
        if at.call.name not in persona.approve or at.call.error is not None:  # nothing is run for a call that is broken
            return await self._run(at, persona.tools, was_begun=was_begun)
        if (refusal := refused(settled)) is not None:
            return refusal
        return commented(await self._run(at, persona.tools, was_begun=was_begun), settled)

    async def _run(self, at: _At, allowed: Sequence[str], *, was_begun: bool) -> ToolResult:
        tool = BUILT_IN.get(at.call.name) or at.other
        if was_begun and tool is not None and not tool.is_idempotent:
            return ToolResult("lost", "Its worker died while it ran. What came of it is unknown; it was not run again.")
        try:
            return await run_tool(at.call, at.context, allowed, at.other)
        except OutliveError as error:
            if isinstance(error, FencedError) or at.attempt < ATTEMPTS:
                raise
            return ToolResult("lost", f"It was tried {ATTEMPTS} times. {error.message}")

    async def _find_other(self, persona: Persona, name: str, context: ToolContext) -> Tool | None:
        """One that is not built in, if the agent has it and it is there."""
        if self._others is None or name in BUILT_IN:
            return None
        return await self._others.find(persona, name, context)

    async def _seal(self, at: _At, result: ToolResult) -> None:
        data = ToolFinished(
            call=at.call.id,
            effect=at.context.effect_id,
            outcome=result.outcome,
            output=result.output,
            exit_code=result.exit_code,
            blob=result.blob,
        )
        await self._scribe.seal(at.view, at.writer, data)

    async def _say_retry(self, view: View, turn: OpenTurn, due: Call, attempt: int, error: OutliveError) -> None:
        """Raises, always: Temporal tries it again, unless no retry mends it."""
        is_ours = error.code.startswith(("step.", "turn.", "append."))  # the log's own word: somebody else is at it
        if is_ours or not (error.is_retryable or isinstance(error, FencedError)):
            raise error
        delay_s = error.retry_after_s or min(RETRY_FIRST_S * 2.0 ** (attempt - 1), RETRY_MOST_S)
        await self._scribe.say_retry(view, turn, due.step, attempt + 1, error.message)
        raise to_failure(error, after_s=delay_s)

    async def _stop(self, at: _At) -> None:
        """A person has stopped the turn: so does the command."""
        await self._seal(at, await self._interrupted(at))

    async def _interrupted(self, at: _At) -> ToolResult:
        """What it had printed is told. What cannot be stopped in time, or asked what became of it, is lost."""
        result = ToolResult("lost", UNKNOWN)
        with anyio.move_on_after(_STOP_TOOL_S), suppress(OutliveError):
            result = await interrupt_tool(at.call, at.context, at.other)
        if result.outcome == "finished" or result.exit_code is not None:  # it had ended, and this is all of it
            return result
        return replace(result, output=f"{at.said.text()}\n{result.output}".lstrip())


def _may_run(state: TurnState, due: Call) -> bool:
    """Not while it waits for a subagent, nor if it is left undone for a message. What is stopped is run for that."""
    if state.is_hurried:
        return due.is_begun
    return due.child is None or due.child.outcome is not None


def machines_since(events: Sequence[Event], step: StepId) -> frozenset[str]:
    """The machines that the conversation has had since the step was first requested: an attempt of it may have used any
    of them."""
    machine: str | None = None
    found: set[str] = set()
    is_requested = False
    for event in events:
        if event.type == "machine.attached":
            machine = event.data["machine"]
        is_requested = is_requested or (event.type == "tool.requested" and event.step == step)
        if is_requested and machine is not None:
            found.add(machine)
    return frozenset(found)


class _Said:
    """Live output: shown, counted, and the newest of it kept."""

    def __init__(self, writer: StepWriter, call: str, progress: Progress) -> None:
        self._writer = writer
        self._call = call
        self._progress = progress
        self._kept: deque[str] = deque()
        self._size = 0

    def say(self, text: str, stream: str) -> None:
        self._writer.delta(text, call=self._call, stream=stream)
        self._progress.characters += len(text)
        self._kept.append(text)
        self._size += len(text)
        while self._size > _KEPT_CHARACTERS and len(self._kept) > 1:
            self._size -= len(self._kept.popleft())

    def text(self) -> str:
        return "".join(self._kept)[-_KEPT_CHARACTERS:]
