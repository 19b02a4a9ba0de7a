"""A compaction: a model summarises what is old, and from the seal on models are told the summary in its place.

Rule 1: the log loses nothing. What goes wrong at the provider is tried again as for a model step; what no retry mends
        is sealed as `failed`, and the turn goes on with what fits, as if nobody had asked for a summary.
Rule 2: one that is sealed is never bought again, and what it cost is in the seal.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from temporalio import activity

from outlive.base import ConflictError, CrashPoint, FencedError, OutliveError, reach
from outlive.conversation.events import CompactionFinished
from outlive.conversation.writer import StepWriter
from outlive.loop.activities.beating import Progress, run_beating
from outlive.loop.activities.budget import find_room
from outlive.loop.activities.fullness import Fullness
from outlive.loop.activities.listening import listen, retry_later, usage_of
from outlive.loop.activities.model import ModelBounds
from outlive.loop.activities.scribe import Scribe
from outlive.loop.binding import Agents, Persona
from outlive.loop.budgets import Asked, room_for_answer
from outlive.loop.compacting import (
    SUMMARY_TOKENS,
    Cut,
    Room,
    after_too_long,
    ask_for_summary,
    choose_cut,
    reads,
    told_after,
)
from outlive.loop.fitting import estimate_tokens
from outlive.loop.fold import step_id
from outlive.loop.models import Answer, ContextTooLongError, ModelRequest
from outlive.loop.models import Usage as Counted
from outlive.loop.models.prices import price_of
from outlive.loop.models.registry import ModelRegistry
from outlive.loop.plan import Plan
from outlive.loop.spoken import Telling
from outlive.loop.state import Compaction, OpenTurn
from outlive.loop.tasks import COMPACT, CompactTask
from outlive.loop.views import View

_SHORTER_TRIES = 3  # with half the material each, when the provider finds it too long
_NO_OLDER = "Nothing is older than what stays as it is."
_NO_SHORTER = "The summary was no shorter than what it was made of."
_NO_SUMMARY = "The model gave no summary."
_STOPPED = "The turn was stopped meanwhile."


class _Material(NamedTuple):
    """What is summarised, of what, in which room; `whole`: that it may have while it is summarised."""

    telling: Telling
    cut: Cut | None
    room: Room
    whole: Room


class _At(NamedTuple):
    """One attempt at work."""

    view: View
    writer: StepWriter
    model: str
    task: CompactTask
    max_tokens: int
    said: list[str]
    sent: list[int]  # tokens, as estimated, of what was asked last
    progress: Progress


class CompactionActivities:
    def __init__(self, scribe: Scribe, agents: Agents, models: ModelRegistry, bounds: ModelBounds) -> None:
        self._scribe = scribe
        self._agents = agents
        self._models = models
        self._bounds = bounds
        self._fullness = Fullness(scribe, bounds.context, bounds.max_tokens)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.compact,)

    @activity.defn(name=COMPACT)
    async def compact(self, task: CompactTask) -> Plan:
        progress = Progress()
        begun: list[_At] = []

        async def take() -> Plan:
            view = await self._scribe.look(task.conversation, lambda turn: _due(turn, task) is not None)
            turn = view.state.turn
            asked = _due(turn, task)
            if turn is not None and asked is not None:
                await self._attempt(view, turn, asked, task, progress, begun)
            return self._scribe.views.decide(view)

        async def stop() -> None:
            for at in begun:
                await self._seal_stopped(at)

        return await run_beating(take, progress, stop)

    async def _attempt(
        self, view: View, turn: OpenTurn, asked: Compaction, task: CompactTask, progress: Progress, begun: list[_At]
    ) -> None:
        step, model = task.compact.step, turn.model
        assert turn.bound is not None
        assert model is not None
        try:
            persona = await self._agents.persona(turn.bound)
            may_begin, max_tokens = await self._find_room(view, turn, asked, task, persona)
            if not may_begin:
                return
            writer = await self._scribe.start(view, turn, step, "compaction", model)
            at = _At(view, writer, model, task, max_tokens, [], [], progress)
            begun.append(at)
            sealed = await self._summarise(at, await self._material(view, asked, persona, model, writer.start))
            begun.clear()
            reach(CrashPoint.COMPACTION_BEFORE_SEAL)
            await self._scribe.seal(view, writer, sealed)
            reach(CrashPoint.COMPACTION_AFTER_SEAL)
        except OutliveError as error:
            begun.clear()
            await self._scribe.views.refresh(view)
            if (now := view.state.turn) is not None and _due(now, task) is not None:
                await self._give_up_or_retry(view, turn, now, task, error)

    # ── what is asked ──

    async def _material(
        self, view: View, asked: Compaction, persona: Persona, model: str, before: int | None
    ) -> _Material:
        telling = await self._fullness.telling(view, before)
        whole = self._fullness.room_of(persona, model, 0)
        room = after_too_long(whole, asked.tokens)
        whole = whole._replace(tokens=min(whole.tokens, asked.tokens or whole.tokens))
        keep = asked.keep if asked.keep is not None else persona.compaction.keep
        return _Material(telling, choose_cut(telling, keep, room), room, whole)

    async def _find_room(
        self, view: View, turn: OpenTurn, asked: Compaction, task: CompactTask, persona: Persona
    ) -> tuple[bool, int]:
        """Whether the budget has room for a summary, and how long it may be."""
        budget, model = persona.budget, turn.model
        most = min(self._bounds.max_tokens, SUMMARY_TOKENS)
        if budget is None or model is None:
            return True, most
        material = await self._material(view, asked, persona, model, None)
        read = reads(_question(material, material.cut, model, task, most)) if material.cut is not None else 0
        price = price_of(model)
        room = partial(room_for_answer, budget, n=_place(turn, task), asked=Asked(model, read, most, price))
        may_begin, tokens = await find_room(self._scribe, view, turn.id, persona, room)
        return may_begin, most if tokens is None else min(most, tokens)

    async def _summarise(self, at: _At, material: _Material) -> CompactionFinished:
        model = at.model
        if material.cut is None:
            return CompactionFinished(outcome="nothing", model=model, reason=_NO_OLDER)
        answer = await self._ask(at, material, material.cut)
        usage, text = usage_of(answer.usage, model), answer.text.strip()
        if answer.stop_reason == "refusal" or not text:
            return CompactionFinished(outcome="failed", model=model, usage=usage, reason=_NO_SUMMARY)
        if answer.stop_reason == "max_tokens":
            text += "\n[the summary was cut off here]"
        before, after = told_after(material.telling, material.cut, text, material.room)
        if after >= before:
            return CompactionFinished(outcome="nothing", model=model, usage=usage, reason=_NO_SHORTER)
        return CompactionFinished(
            outcome="compacted",
            summary=text,
            through=material.cut.through,
            parts=len(material.cut.units),
            before=before,
            after=after,
            model=model,
            usage=usage,
        )

    async def _ask(self, at: _At, material: _Material, cut: Cut) -> Answer:
        """Ask once; with less of the material if the provider finds it too long."""
        client, name = await self._models.find(at.model)
        for tries_left in reversed(range(_SHORTER_TRIES)):
            request = _question(material, cut, name.name, at.task, at.max_tokens)
            at.sent[:] = [reads(request)]
            try:
                async with aclosing(client.stream(request)) as pieces:
                    return await listen(pieces, at.writer, at.said, at.progress)
            except ContextTooLongError:
                if not tries_left or at.said:
                    raise
                whole = material.whole
                material = material._replace(whole=whole._replace(tokens=min(whole.tokens, at.sent[0]) // 2))
        raise AssertionError("the last try returns or raises")

    # ── ends ──

    async def _give_up_or_retry(
        self, view: View, turn: OpenTurn, now: OpenTurn, task: CompactTask, error: OutliveError
    ) -> None:
        """Nobody waits for a summary for ever: what is not tried again is sealed as failed, in an attempt that is open,
        or in one that is begun for it."""
        step, model = task.compact.step, turn.model or ""
        attempt = turn.attempts.get(step, 0) + 1
        await retry_later(self._scribe, view, turn, step, attempt, turn.attempts_of_model(step) + 1, error)
        if isinstance(error, ConflictError | FencedError) or (
            error.is_retryable and not error.code.startswith("model.")
        ):
            raise error
        if now.attempts.get(step, 0) == attempt:
            writer = self._scribe.go_on(view, now, step)
        else:
            writer = await self._scribe.start(view, now, step, "compaction", model)
        await self._scribe.seal(view, writer, CompactionFinished(outcome="failed", model=model, reason=error.message))

    async def _seal_stopped(self, at: _At) -> None:
        """What was asked before somebody stopped it was bought, about."""
        counted = Counted(input_tokens=sum(at.sent), output_tokens=estimate_tokens("".join(at.said)))
        usage = usage_of(counted, at.model).model_copy(update={"estimated": True})
        stopped = CompactionFinished(outcome="failed", model=at.model, usage=usage, reason=_STOPPED)
        await self._scribe.seal(at.view, at.writer, stopped)


def _due(turn: OpenTurn | None, task: CompactTask) -> Compaction | None:
    """What was asked for, if it is still to be done by this step."""
    if turn is None or turn.id != task.turn or turn.bound is None or not turn.may_take(task.compact.step):
        return None
    asked = turn.compaction
    return asked if asked is not None and asked.seq == task.compact.requested else None


def _place(turn: OpenTurn, task: CompactTask) -> int:
    """As if it stood among the steps of the turn: behind those that have begun."""
    is_model_begun = step_id(turn.id, turn.next_n) in turn.attempts
    return turn.next_n + is_model_begun - (task.compact.step in turn.attempts)


def _question(material: _Material, cut: Cut, model: str, task: CompactTask, max_tokens: int) -> ModelRequest:
    return ask_for_summary(
        material.telling, cut, material.whole, model=model, step=task.compact.step, max_tokens=max_tokens
    )
