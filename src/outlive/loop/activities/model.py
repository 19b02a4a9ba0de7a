"""A model step: the context is made from the log, the answer is streamed to the feed and sealed in the log.

Rule 1: a step that is sealed is never bought again.
Rule 2: what goes wrong at the provider is tried again as `models.errors` says, each time said in the log with its
        reason; what no retry mends ends the turn, with the provider's own words.
Rule 3: where the model would be told more than it can read, a compaction comes first (`fullness.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from temporalio import activity

from outlive.base import CrashPoint, OutliveError, StepId, reach
from outlive.conversation.events import ModelResponded, ToolCall, TurnFinished
from outlive.conversation.writer import StepWriter
from outlive.loop.activities.beating import Progress, run_beating
from outlive.loop.activities.begin import begin_turn
from outlive.loop.activities.budget import find_room
from outlive.loop.activities.fullness import Fullness
from outlive.loop.activities.holding import forget_undone
from outlive.loop.activities.hurrying import unless_hurried
from outlive.loop.activities.listening import listen, retry_later, usage_of
from outlive.loop.activities.pictures import fetch_pictures
from outlive.loop.activities.scribe import Scribe, actor_of, operator_of
from outlive.loop.binding import Agents, Persona
from outlive.loop.budgets import Asked, room_for_answer
from outlive.loop.context import BOUNDS, Bounds, build_context
from outlive.loop.fitting import estimate_tokens, estimate_tools
from outlive.loop.models import Answer, ContextTooLongError, ModelRequest
from outlive.loop.models import Usage as Counted
from outlive.loop.models.prices import price_of
from outlive.loop.models.registry import ModelRegistry
from outlive.loop.plan import Finish, Plan
from outlive.loop.state import OpenTurn
from outlive.loop.tasks import CALL_MODEL, ModelTask
from outlive.loop.tools.registry import specs_of
from outlive.loop.tools.shelf import Shelf, Told
from outlive.loop.views import View

_SHORTER_TRIES = 3  # with half the context each, when the provider finds it too long


@dataclass(frozen=True, slots=True)
class ModelBounds:
    """`max_tokens`: of one answer."""

    context: Bounds = BOUNDS
    max_tokens: int = 16_384


class _At(NamedTuple):
    """One attempt of a step at work."""

    view: View
    turn: OpenTurn
    step: StepId
    writer: StepWriter
    persona: Persona
    model: str
    max_tokens: int
    said: list[str]
    sent: list[int]  # tokens, as estimated, of what was asked last
    progress: Progress


class ModelActivities:
    def __init__(
        self,
        scribe: Scribe,
        agents: Agents,
        models: ModelRegistry,
        bounds: ModelBounds,
        others: Shelf | None = None,
    ) -> None:
        self._others = others
        self._scribe = scribe
        self._agents = agents
        self._models = models
        self._bounds = bounds
        self._fullness = Fullness(scribe, bounds.context, bounds.max_tokens)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.call_model,)

    @activity.defn(name=CALL_MODEL)
    async def call_model(self, task: ModelTask) -> Plan:
        progress = Progress()
        begun: list[_At] = []

        async def take() -> Plan:
            view = await self._scribe.look(task.conversation, lambda turn: _is_due(turn, task))
            plan = await self._do(view, task, progress, begun)
            if plan.turn != task.turn:
                await self._scribe.mend(view)
            return plan

        async def stop() -> None:
            for at in begun:
                await self._seal_partial(at)

        return await run_beating(take, progress, stop)

    async def _do(self, view: View, task: ModelTask, progress: Progress, begun: list[_At]) -> Plan:
        if (plan := await self._begin(view, task)) is not None:
            return plan
        turn = view.state.turn
        if turn is None or not _is_due(turn, task) or not view.state.needs_answer:
            return self._scribe.views.decide(view)
        return await self._attempt(view, turn, task, progress, begun)

    async def _begin(self, view: View, task: ModelTask) -> Plan | None:
        """Begin the turn, if this step is the first that is done of it. The plan, if something else is next then."""
        plan = self._scribe.views.decide(view)
        if plan.turn != task.turn or plan.begin is None:
            return None
        reach(CrashPoint.TURN_AFTER_SUBMIT)
        plan = await begin_turn(self._scribe, self._agents, view, task.turn, plan.begin)
        return plan if plan.model != task.model else None

    async def _attempt(self, view: View, turn: OpenTurn, task: ModelTask, progress: Progress, begun: list[_At]) -> Plan:
        step, attempt = task.model.step, turn.attempts.get(task.model.step, 0) + 1
        assert turn.bound is not None
        try:
            persona = await self._agents.persona(turn.bound)
            if await self._is_full(view, turn, step, persona):
                return self._scribe.views.decide(view)
            may_begin, max_tokens = await self._find_room(view, turn, task, persona)
            if not may_begin:
                return self._scribe.views.decide(view)
            await forget_undone(self._scribe, view, turn.id)
            writer = await self._scribe.start(view, turn, step, "model", turn.bound.model)
            if not _is_next(self._scribe.views.decide(view), step):  # what it was to answer was withdrawn just now
                return self._scribe.views.decide(view)
            at = _At(view, turn, step, writer, persona, turn.bound.model, max_tokens, [], [], progress)
            begun.append(at)
            answer = await unless_hurried(
                self._scribe, view, lambda state: state.is_outrun(writer.start), lambda: self._ask(at)
            )
            if answer is None:
                await self._seal_partial(at)
                return self._scribe.views.decide(view)
            begun.clear()
            reach(CrashPoint.MODEL_BEFORE_SEAL)
            await self._scribe.seal(view, writer, _sealed(answer, at.model))
            reach(CrashPoint.MODEL_AFTER_SEAL)
            await self._end_with(view, turn)
        except _CompactFirstError as first:
            await self._scribe.say_retry(view, turn, step, attempt + 1, first.message)
        except OutliveError as error:
            await self._scribe.views.refresh(view)
            if _is_open(view.state.turn, task):
                return await self._give_up_or_retry(view, turn, step, attempt, error)
        return self._scribe.views.decide(view)

    async def _is_full(self, view: View, turn: OpenTurn, step: StepId, persona: Persona) -> bool:
        """Whether a compaction comes first."""
        if step in turn.attempts or not self._fullness.may_be_full(view, turn, persona):
            return False  # before the first attempt it was looked at
        others = await self._tell_others(view, turn, step, persona)
        spent = estimate_tokens(_instructions(persona, others))
        spent += estimate_tools(specs_of(persona.tools, others.tools))
        return await self._fullness.is_asked_for(view, turn, persona, spent)

    async def _find_room(self, view: View, turn: OpenTurn, task: ModelTask, persona: Persona) -> tuple[bool, int]:
        """Whether the budget has room for an answer, and how long it may be."""
        budget, most = persona.budget, self._bounds.max_tokens
        if budget is None or turn.bound is None:
            return True, most
        reads = await self._estimate(view, turn, task.model.step, persona) if budget.needs_estimate else 0
        asked = Asked(turn.bound.model, reads, most, price_of(turn.bound.model))
        room = partial(room_for_answer, budget, n=task.model.n, asked=asked)
        may_begin, tokens = await find_room(self._scribe, view, turn.id, persona, room)
        return may_begin, most if tokens is None else tokens

    async def _estimate(self, view: View, turn: OpenTurn, step: StepId, persona: Persona) -> int:
        """About how many tokens the next answer has to read."""
        images = await fetch_pictures(self._scribe.conversations.blobs, view.events)
        others = await self._tell_others(view, turn, step, persona)
        assert turn.bound is not None
        bounds = self._fullness.bounds_of(persona, turn.bound.model)
        context = build_context(view.events, instructions=_instructions(persona, others), bounds=bounds, images=images)
        return context.tokens + estimate_tools(specs_of(persona.tools, others.tools))

    # ── asking ──

    async def _ask(self, at: _At) -> Answer:
        """Ask once. If the provider finds it too long, a compaction comes first; where that is of no use, ask with less
        context."""
        client, name = await self._models.find(at.model)
        images = await fetch_pictures(self._scribe.conversations.blobs, at.view.events)
        others = await self._tell_others(at.view, at.turn, at.step, at.persona)
        tools = specs_of(at.persona.tools, others.tools)
        instructions = _instructions(at.persona, others)
        bounds = self._fullness.bounds_of(at.persona, at.model)
        reach(CrashPoint.MODEL_BEFORE_CALL)
        for tries_left in reversed(range(_SHORTER_TRIES)):
            context = build_context(
                at.view.events,
                before=at.writer.start,
                instructions=instructions,
                bounds=bounds,
                images=images,
            )
            request = ModelRequest(
                model=name.name,
                messages=context.messages,
                system=context.system,
                tools=tools,
                max_tokens=at.max_tokens,
                step=at.step,
            )
            at.sent[:] = [context.tokens + estimate_tools(tools)]
            try:
                async with aclosing(client.stream(request)) as pieces:
                    return await listen(pieces, at.writer, at.said, at.progress)
            except ContextTooLongError as error:
                if not at.said and await self._fullness.is_too_long(
                    at.view, at.turn, at.step, at.persona, context.tokens
                ):
                    raise _CompactFirstError(error.code, f"{error.message} (what is old is summarised first)") from None
                if not tries_left or at.said:
                    raise
                bounds = replace(bounds, tokens=context.tokens // 2)
        raise AssertionError("the last try returns or raises")

    async def _tell_others(self, view: View, turn: OpenTurn, step: StepId, persona: Persona) -> Told:
        """The tools that are not built in."""
        if self._others is None or turn.bound is None:
            return Told()
        operator = operator_of(view.conversation, turn.bound)
        return await self._others.tell(persona, view.conversation, turn.id, step, operator)

    # ── ends ──

    async def _give_up_or_retry(
        self, view: View, turn: OpenTurn, step: StepId, attempt: int, error: OutliveError
    ) -> Plan:
        await retry_later(self._scribe, view, turn, step, attempt, error)
        if error.code.startswith("model.") or not (error.is_retryable or error.kind in ("conflict", "fenced")):
            finish = Finish(outcome="failed", words=await self._scribe.put_words(error.message))
            return Plan(conversation=view.conversation, turn=turn.id, seq=view.seq, finish=finish)
        raise error

    async def _end_with(self, view: View, turn: OpenTurn) -> None:
        """If this was the last answer of the turn, end it right behind: whoever waits for it need not wait for the
        workflow, which finds nothing left to do. If something came meanwhile, the next plan says what follows."""
        plan = self._scribe.views.decide(view)
        if plan.turn == turn.id and plan.finish is not None:
            finished = TurnFinished(outcome=plan.finish.outcome, reason=plan.finish.reason)
            await self._scribe.end(view, turn.id, actor_of(turn.bound), finished, expect=plan.seq)

    async def _seal_partial(self, at: _At) -> None:
        """What was said before somebody stopped it was said, and bought. How much that was is estimated."""
        text = "".join(at.said)
        if text.strip():
            counted = Counted(input_tokens=sum(at.sent), output_tokens=estimate_tokens(text))
            usage = usage_of(counted, at.model).model_copy(update={"estimated": True})
            partial_answer = ModelResponded(text=text, model=at.model, usage=usage, stop_reason="interrupted")
            await self._scribe.seal(at.view, at.writer, partial_answer)


class _CompactFirstError(ContextTooLongError):
    """What is too long is made shorter, and the step is tried again."""


def _is_due(turn: OpenTurn | None, task: ModelTask) -> bool:
    """Whether the step is next: not if something else comes first by now."""
    return _is_open(turn, task) and turn is not None and turn.compaction is None


def _is_open(turn: OpenTurn | None, task: ModelTask) -> bool:
    """Whether the step still has to be done: not if it is sealed, or of a turn that is over."""
    if turn is None or turn.id != task.turn or not turn.may_take(task.model.step):
        return False
    return turn.bound is not None and turn.next_n == task.model.n


def _is_next(plan: Plan, step: StepId) -> bool:
    return plan.model is not None and plan.model.step == step


def _instructions(persona: Persona, others: Told) -> str:
    return "\n\n".join([persona.instructions, *others.notes])


def _sealed(answer: Answer, model: str) -> ModelResponded:
    return ModelResponded(
        text=answer.text,
        tool_calls=[
            ToolCall(id=call.id, name=call.name, arguments=call.arguments, error=call.error)
            for call in answer.tool_calls
        ],
        blocks=[*answer.blocks],
        model=model,
        usage=usage_of(answer.usage, model),
        stop_reason=answer.stop_reason,
    )
