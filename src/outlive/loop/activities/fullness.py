"""Before an answer is asked for: whether what the model would be told has grown too long. Then a compaction is asked
for, in the log, and the next plan says it. As in `budget.py`, nothing is done here but looking and saying."""

from dataclasses import replace

from outlive.base import ConflictError, CrashPoint, StepId, reach
from outlive.conversation.events import CompactionRequested
from outlive.loop.activities.pictures import fetch_pictures
from outlive.loop.activities.scribe import MOVED, Scribe, actor_of
from outlive.loop.binding import Persona
from outlive.loop.compacting import Room, after_too_long, is_full, is_worth_it, room_in
from outlive.loop.context import Bounds
from outlive.loop.fitting import IMAGE_TOKENS
from outlive.loop.fold import fold_turn
from outlive.loop.models.windows import context_tokens
from outlive.loop.spoken import Telling, tell
from outlive.loop.state import OpenTurn
from outlive.loop.views import View


class Fullness:
    """`bounds`: as the settings have them. `answer_tokens`: the most that one answer may have."""

    def __init__(self, scribe: Scribe, bounds: Bounds, answer_tokens: int) -> None:
        self._scribe = scribe
        self._bounds = bounds
        self._answer_tokens = answer_tokens

    def bounds_of(self, persona: Persona, model: str) -> Bounds:
        """What this model may be told."""
        known = context_tokens(model)
        return replace(
            self._bounds, tokens=room_in(self._bounds.tokens, known, persona.compaction, self._answer_tokens)
        )

    def room_of(self, persona: Persona, model: str, spent: int) -> Room:
        bounds = self.bounds_of(persona, model)
        return Room(bounds.tokens, spent, bounds.result_bytes)

    async def telling(self, view: View, before: int | None = None) -> Telling:
        events = [event for event in view.events if before is None or event.seq < before]
        images = await fetch_pictures(self._scribe.conversations.blobs, events)
        queue = fold_turn(view.conversation, events).queue
        return replace(tell(events, None, images), waits=min((each.seq for each in queue), default=None))

    def may_be_full(self, view: View, turn: OpenTurn, persona: Persona) -> bool:
        """A short conversation need not be weighed at every step: no character is more than a token. Tools are taken
        to need less than half of what there is."""
        assert turn.model is not None
        rules, tokens = persona.compaction, self.bounds_of(persona, turn.model).tokens
        return rules.enabled and view.size + view.pictures * IMAGE_TOKENS > rules.at * tokens / 2

    async def is_asked_for(self, view: View, turn: OpenTurn, persona: Persona, spent: int) -> bool:
        """Whether a compaction comes first: it is asked for, if it is due. `spent`: tokens of what is told besides."""
        assert turn.model is not None
        rules, room = persona.compaction, self.room_of(persona, turn.model, spent)
        if not is_full(await self.telling(view), rules, room):
            return False
        return await self._ask(view, turn, CompactionRequested(reason="full"))

    async def is_too_long(self, view: View, turn: OpenTurn, step: StepId, persona: Persona, tokens: int) -> bool:
        """The provider found so many tokens too long: whether a compaction comes first. Once for a step."""
        assert turn.model is not None
        rules, now = persona.compaction, view.state.turn
        if not rules.enabled or now is None or now.id != turn.id or step in now.too_long:
            return False
        room = after_too_long(self.room_of(persona, turn.model, 0), tokens)
        if not is_worth_it(await self.telling(view), rules, room):
            return False
        return await self._ask(view, turn, CompactionRequested(reason="too_long", step=step, tokens=tokens))

    async def _ask(self, view: View, turn: OpenTurn, asked: CompactionRequested) -> bool:
        """Whoever wrote meanwhile is looked at first: the plan says what follows then, and the step looks again."""
        try:
            seq = view.seq
            await self._scribe.say(view, turn.id, f"compact/{seq}", actor_of(turn.bound), asked, expect=seq)
        except ConflictError as error:
            if error.code not in MOVED:
                raise
            await self._scribe.views.refresh(view)
        reach(CrashPoint.COMPACTION_AFTER_REQUEST)
        return True
