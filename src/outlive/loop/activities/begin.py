"""Beginning a turn: it is bound to an agent, its version and a model, once, in the log."""

from outlive.base import ConflictError, CrashPoint, OutliveError, TurnId, reach
from outlive.conversation.events import TurnStarted
from outlive.loop.activities.scribe import MOVED, Scribe, actor_of
from outlive.loop.binding import Agents
from outlive.loop.plan import Begin, Finish, Plan
from outlive.loop.replays import replay_of
from outlive.loop.state import Binding
from outlive.loop.views import View


async def begin_turn(scribe: Scribe, agents: Agents, view: View, turn: TurnId, begin: Begin) -> Plan:
    """What is next once it has begun. One that cannot be bound ends, and says why."""
    seen = view.seq  # which others who hold the view may move while we wait
    try:
        bound = _bound_again(view, turn) or await agents.bind(begin.agent, begin.model)
    except OutliveError as error:
        if error.is_retryable:
            raise
        finish = Finish(outcome="failed", words=await scribe.put_words(error.message))
        return Plan(conversation=view.conversation, turn=turn, seq=seen, finish=finish)
    started = TurnStarted(agent=bound.agent, version=bound.version, model=bound.model)
    try:
        # For this moment only: a turn that was ended meanwhile, before it began, does not begin any more.
        await scribe.say(view, turn, f"begin/{turn}", actor_of(bound), started, expect=seen)
    except ConflictError as error:
        if error.code not in MOVED:
            raise
        await scribe.views.refresh(view)
    reach(CrashPoint.TURN_AFTER_PLAN)
    return scribe.views.decide(view)


def _bound_again(view: View, turn: TurnId) -> Binding | None:
    """A replay has the agent as it was."""
    replay = replay_of(view.events, turn)
    return Binding(replay["agent"], replay["version"], replay["model"]) if replay is not None else None
