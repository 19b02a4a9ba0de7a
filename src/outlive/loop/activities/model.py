"""A model step: the context is made from the log, the answer is streamed to the feed and sealed in the log.

Rule 1: a step that is sealed is never bought again.
Rule 2: what goes wrong at the provider is tried again as `models.errors` says, each time said in the log with its
        reason; what no retry mends ends the turn, with the provider's own words.
Rule 3: which model is asked is what the log says when the attempt begins (`OpenTurn.model`): an attempt begins only at
        the head that this was read from. An agent's fallbacks stand in for one that is away, as `models.fallbacks`
        says, each said in the log before it is asked.
Rule 4: where the model would be told more than it can read, a compaction comes first (`fullness.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from temporalio import activity

from outlive.base import ConflictError, CrashPoint, OutliveError, StepId, reach
from outlive.conversation.events import ModelFallback, ModelResponded, ToolCall, TurnFinished
from outlive.conversation.writer import StepWriter
from outlive.loop.activities.beating import Progress, run_beating
from outlive.loop.activities.begin import begin_turn
from outlive.loop.activities.budget import find_room
from outlive.loop.activities.fullness import Fullness
from outlive.loop.activities.holding import forget_undone
from outlive.loop.activities.hurrying import unless_hurried
from outlive.loop.activities.listening import listen, retry_later, usage_of
from outlive.loop.activities.pictures import fetch_pictures
from outlive.loop.activities.scribe import MOVED, Scribe, actor_of, operator_of
from outlive.loop.binding import Agents, Persona
from outlive.loop.budgets import Asked, room_for_answer
from outlive.loop.context import BOUNDS, Bounds, build_context
from outlive.loop.fitting import estimate_tokens, estimate_tools
from outlive.loop.models import Answer, ContextTooLongError, ModelRequest
from outlive.loop.models import Usage as Counted
from outlive.loop.models.fallbacks import next_model
from outlive.loop.models.prices import price_of
from outlive.loop.models.registry import ModelRegistry
from outlive.loop.plan import Finish, Plan
from outlive.loop.replays import replay_of
from outlive.loop.state import OpenTurn
from outlive.loop.tasks import CALL_MODEL, ModelTask
from outlive.loop.tools.registry import specs_of
from outlive.loop.tools.shelf import Shelf, Told
from outlive.loop.views import View

_TRIES = 50  # while others write to the same conversation
_HURRIED = "A message came that was to be read at once."
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

    @property
    def attempt(self) -> int:
        return self.turn.attempts.get(self.step, 0) + 1


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
        return await self._attempt(view, task, progress, begun)

    async def _begin(self, view: View, task: ModelTask) -> Plan | None:
        """Begin the turn, if this step is the first that is done of it. The plan, if something else is next then."""
        plan = self._scribe.views.decide(view)
        if plan.turn != task.turn or plan.begin is None:
            return None
        reach(CrashPoint.TURN_AFTER_SUBMIT)
        plan = await begin_turn(self._scribe, self._agents, view, task.turn, plan.begin)
        return plan if plan.model != task.model else None

    async def _attempt(self, view: View, task: ModelTask, progress: Progress, begun: list[_At]) -> Plan:
        at: _At | None = None
        try:
            at = await self._start(view, task, progress)
            if at is None:
                return self._scribe.views.decide(view)
            begun.append(at)
            started = at.writer.start
            answer = await unless_hurried(
                self._scribe, view, lambda state: state.is_outrun(started), lambda: self._ask(at)
            )
            if answer is None:
                if not await self._seal_partial(at):
                    await self._scribe.say_retry(view, at.turn, at.step, at.attempt + 1, _HURRIED)
                return self._scribe.views.decide(view)
            begun.clear()
            reach(CrashPoint.MODEL_BEFORE_SEAL)
            await self._scribe.seal(view, at.writer, _sealed(answer, at.model))
            reach(CrashPoint.MODEL_AFTER_SEAL)
            await self._end_with(view, at.turn)
        except _CompactFirstError as first:
            assert at is not None
            await self._scribe.say_retry(view, at.turn, at.step, at.attempt + 1, first.message)
        except OutliveError as error:
            await self._scribe.views.refresh(view)
            return await self._go_on_after(view, task, at, error)
        return self._scribe.views.decide(view)

    async def _start(self, view: View, task: ModelTask, progress: Progress) -> _At | None:
        """Begin the next attempt, with the model that the log names at this moment. None if it may not be begun."""
        step = task.model.step
        for _ in range(_TRIES):
            turn, seen = view.state.turn, view.seq
            if turn is None or not _is_due(turn, task) or not view.state.needs_answer:
                return None  # what it was to answer may have been withdrawn
            assert turn.bound is not None
            assert turn.model is not None
            persona = await self._agents.persona(turn.bound)
            if await self._is_full(view, turn, step, persona):
                return None
            may_begin, max_tokens = await self._find_room(view, turn, task, persona)
            if not may_begin:
                return None
            await forget_undone(self._scribe, view, turn.id)
            if view.seq != seen:
                continue
            try:
                writer = await self._scribe.start(view, turn, step, "model", turn.model, expect=seen)
                return _At(view, turn, step, writer, persona, turn.model, max_tokens, [], [], progress)
            except ConflictError as error:
                if error.code not in MOVED:
                    raise
                await self._scribe.views.refresh(view)
        raise ConflictError("append.moved", "The conversation is written to all the time; the step is tried again.")

    async def _is_full(self, view: View, turn: OpenTurn, step: StepId, persona: Persona) -> bool:
        """Whether a compaction comes first."""
        if turn.attempts_of_model(step) or not self._fullness.may_be_full(view, turn, persona):
            return False  # before the first attempt of this model it was looked at
        others = await self._tell_others(view, turn, step, persona)
        spent = estimate_tokens(_instructions(persona, others))
        spent += estimate_tools(specs_of(persona.tools, others.tools))
        return await self._fullness.is_asked_for(view, turn, persona, spent)

    async def _find_room(self, view: View, turn: OpenTurn, task: ModelTask, persona: Persona) -> tuple[bool, int]:
        """Whether the budget has room for an answer, and how long it may be."""
        budget, most = persona.budget, self._bounds.max_tokens
        if budget is None or turn.model is None:
            return True, most
        reads = await self._estimate(view, turn, task.model.step, persona) if budget.needs_estimate else 0
        asked = Asked(turn.model, reads, most, price_of(turn.model))
        room = partial(room_for_answer, budget, n=task.model.n, asked=asked)
        may_begin, tokens = await find_room(self._scribe, view, turn.id, persona, room)
        return may_begin, most if tokens is None else tokens

    async def _estimate(self, view: View, turn: OpenTurn, step: StepId, persona: Persona) -> int:
        """About how many tokens the next answer has to read."""
        images = await fetch_pictures(self._scribe.conversations.blobs, view.events)
        others = await self._tell_others(view, turn, step, persona)
        assert turn.model is not None
        bounds = self._fullness.bounds_of(persona, turn.model)
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

    async def _go_on_after(self, view: View, task: ModelTask, at: _At | None, error: OutliveError) -> Plan:
        """What follows `error`: another model, another attempt, or the end of the turn. `at`: None if no attempt was
        begun."""
        turn, step = view.state.turn, task.model.step
        if turn is None or not _is_open(turn, task):
            return self._scribe.views.decide(view)
        before = at.turn if at is not None else turn
        attempt = before.attempts.get(step, 0) + 1
        if at is not None and await self._is_another_asked(view, task, at, error):
            return self._scribe.views.decide(view)
        return await self._give_up_or_retry(view, turn, step, attempt, before.attempts_of_model(step) + 1, error)

    async def _is_another_asked(self, view: View, task: ModelTask, at: _At, error: OutliveError) -> bool:
        """Whether the next attempt goes to another model: one that somebody asked for since this attempt began, or a
        fallback. The log says so then, with the reason."""
        for _ in range(_TRIES):
            turn = view.state.turn
            if turn is None or not _is_open(turn, task) or turn.attempts.get(at.step, 0) != at.attempt:
                return True  # others go on with it
            if turn.model != at.model and turn.model is not None and error.code.startswith("model."):
                reason = f"{error.message} ({turn.model} is asked now)"
                await self._scribe.say_retry(view, turn, at.step, at.attempt + 1, reason)
                return True
            # A replay is of one model: what another one would have done is another replay.
            fallbacks = at.persona.fallbacks if replay_of(view.events, turn.id) is None else ()
            tried = at.turn.attempts_of_model(at.step) + 1
            instead = next_model(error, tried, model=at.model, fallbacks=fallbacks, away=turn.away)
            if instead is None:
                return False
            if await self._is_said(view, turn, at, instead, error):
                return True
        raise ConflictError("append.moved", "The conversation is written to all the time; the step is tried again.")

    async def _is_said(self, view: View, turn: OpenTurn, at: _At, instead: str, error: OutliveError) -> bool:
        """Say that a fallback is asked next. False if somebody wrote first."""
        attempt = at.attempt + 1
        fallback = ModelFallback(
            model=instead, before=at.model, step=at.step, attempt=attempt, code=error.code, reason=error.message
        )
        key = f"fallback/{at.step}/{attempt}"
        try:
            await self._scribe.say(view, turn.id, key, actor_of(turn.bound), fallback, expect=view.seq)
        except ConflictError as moved:
            if moved.code not in MOVED:
                raise
            await self._scribe.views.refresh(view)
            return False
        reach(CrashPoint.MODEL_AFTER_FALLBACK)
        return True

    async def _give_up_or_retry(
        self, view: View, turn: OpenTurn, step: StepId, attempt: int, tried: int, error: OutliveError
    ) -> Plan:
        """`tried`: attempts of this model."""
        await retry_later(self._scribe, view, turn, step, attempt, tried, error)
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

    async def _seal_partial(self, at: _At) -> bool:
        """What was said before somebody stopped it was said, and bought. How much that was is estimated. False if
        nothing was."""
        text = "".join(at.said)
        if text.strip():
            counted = Counted(input_tokens=sum(at.sent), output_tokens=estimate_tokens(text))
            usage = usage_of(counted, at.model).model_copy(update={"estimated": True})
            partial_answer = ModelResponded(text=text, model=at.model, usage=usage, stop_reason="interrupted")
            await self._scribe.seal(at.view, at.writer, partial_answer)
        return bool(text.strip())


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
