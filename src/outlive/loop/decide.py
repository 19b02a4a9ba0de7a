"""What to do next, from what the log says. Pure and total; the first row that fits counts:

    the turn at hand                                               | the plan
    ---------------------------------------------------------------+----------------------------------------------
    none                                                           | nothing
    interrupted                                                    | finish: interrupted
    opened by a message, not begun                                 | begin
    more of a budget was asked for, and something is left to do;   |
        and a person said no, or has not answered in time          | finish: out_of_budget
        and has not answered yet                                   | wait, until that expires
    paused; and what follows is a step that has not begun, or wait | wait, until it is resumed
    a message hurries, and calls that were begun have no result    | tools: those, to be stopped
    the newest answer has calls without a result, and none hurries;|
        an approval of one has expired, and no message waits       | finish: waiting_expired
        some of those that are next wait for nothing any more      | tools: those
        else                                                       | wait, until the first of them is over anyway
    a compaction was asked for                                     | compact
    no answer yet, all calls have results, or a message waits;     |
        and the turn has had all its steps                         | finish: failed
        else                                                       | model
    the newest answer is a refusal                                 | finish: failed
    the newest answer was cut off at its limit                     | finish: done, with that as its reason
    else                                                           | finish: done

Tools: calls run in the order of the answer. Those that are independent (`parallel`) and stand next to each other run at
the same time; one that is `in_turn` runs alone. A tool nobody knows runs alone too: its step says that there is none.
A call that waits for a person, for the time or for a subagent holds up what comes after it, unless both are
independent. One whose time is over is run: its step says how it ended. A turn that waits for subagents alone is not
parked: it does go on, in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from outlive.loop.fold import compaction_id, step_id
from outlive.loop.plan import Begin, CompactStep, Finish, ModelStep, Plan, ToolStep, Wait
from outlive.loop.state import Call, Hold, OpenTurn, TurnState

Runs = Literal["parallel", "in_turn"]


@dataclass(frozen=True, slots=True)
class Limits:
    """`steps`: of a turn, tool steps included. `at_once`: tools that run at the same time."""

    steps: int = 200
    at_once: int = 8


LIMITS = Limits()

_EXPIRED = "Nobody answered in time."
_NO_MORE = "The budget is used up, and a person did not raise it."
_NOBODY = "The budget is used up, and nobody raised it in time."

Next = Begin | ModelStep | CompactStep | tuple[ToolStep, ...] | Wait | Finish


def decide(state: TurnState, runs: Mapping[str, Runs], limits: Limits = LIMITS, now: str = "") -> Plan:
    """The plan at `state`; `runs` says of each tool whether it is independent of the others. `now`: the moment, for
    what waits."""
    turn = state.turn
    if turn is None:
        return Plan(conversation=state.conversation, seq=state.seq, nothing=True)
    what = _next(state, turn, runs, limits, now)
    match _paused(what, turn) if turn.is_paused else what:
        case Begin() as begin:
            said: dict[str, Any] = {"begin": begin}
        case ModelStep() as model:
            said = {"model": model}
        case CompactStep() as compact:
            said = {"compact": compact}
        case Wait() as wait:
            said = {"wait": wait}
        case Finish() as finish:
            said = {"finish": finish}
        case tools:
            said = {"tools": tools}
    return Plan(conversation=state.conversation, turn=turn.id, seq=state.seq, **said)


def _next(state: TurnState, turn: OpenTurn, runs: Mapping[str, Runs], limits: Limits, now: str) -> Next:
    answer = turn.answer
    if turn.is_interrupted:
        return Finish(outcome="interrupted")
    if turn.bound is None:
        return _begin(state, turn)
    missing = [call for call in answer.calls if call.outcome is None] if answer else []
    if state.is_hurried:
        missing = [call for call in missing if call.is_begun]
    is_left = bool(missing) or turn.compaction is not None or state.needs_answer
    if is_left and turn.gate is not None and turn.gate.decision != "approve":
        return _at_gate(turn.gate, now, is_parked=turn.is_parked)
    if missing:
        return _next_calls(missing, state, turn, runs, limits.at_once, now)
    if turn.compaction is not None:
        asked = turn.compaction.seq
        return CompactStep(step=compaction_id(turn.id, asked), requested=asked)
    if answer is None or state.needs_answer:
        if turn.next_n > limits.steps:
            return Finish(outcome="failed", reason=f"The turn took {limits.steps} steps, which is its limit.")
        return ModelStep(step=step_id(turn.id, turn.next_n), n=turn.next_n)
    if answer.stop_reason == "refusal":
        return Finish(outcome="failed", reason="The model refused to answer.")
    if answer.stop_reason == "max_tokens":
        return Finish(outcome="done", reason="The answer was cut off at its limit of tokens.")
    return Finish(outcome="done")


def _paused(what: Next, turn: OpenTurn) -> Next:
    """Steps that have begun are finished, and a turn that has nothing left to do ends."""
    match what:
        case Begin() | Finish():
            return what
        case ModelStep(step=step) | CompactStep(step=step) if step in turn.attempts:
            return what
        case tuple() if begun := tuple(each for each in what if each.step in turn.attempts):
            return begun
        case _:
            return Wait(is_parked=turn.is_parked)


def _begin(state: TurnState, turn: OpenTurn) -> Begin:
    """The newest message that asks for a model gets it, or who asked for one later; else the conversation does."""
    asked = [(message.seq, message.model) for message in state.waiting if message.model is not None]
    asked += [(turn.asked.seq, turn.asked.model)] if turn.asked is not None else []
    return Begin(agent=state.agent, model=max(asked)[1] if asked else state.model)


def _at_gate(gate: Hold, now: str, *, is_parked: bool) -> Next:
    """Nothing is begun while nobody has said whether it may cost more."""
    if gate.decision is not None:
        return Finish(outcome="out_of_budget", reason=_NO_MORE if gate.decision == "deny" else _NOBODY)
    if gate.until <= now:
        return Finish(outcome="out_of_budget", reason=_NOBODY)
    return Wait(until=gate.until, is_parked=is_parked)


def _next_calls(
    missing: list[Call], state: TurnState, turn: OpenTurn, runs: Mapping[str, Runs], at_once: int, now: str
) -> Next:
    """What is next of the calls without a result."""
    is_spoken_to = bool(state.waiting)
    if not is_spoken_to and any(call.hold is not None and call.hold.decision == "expired" for call in missing):
        return Finish(outcome="waiting_expired", reason=_EXPIRED)
    group = list(takewhile(lambda call: runs.get(call.name) == "parallel", missing)) or missing[:1]
    free = [call for call in group if call.is_free(now, is_spoken_to=is_spoken_to)]
    if state.is_hurried:
        free = missing  # each is stopped, whatever it waits for
    if free:
        return tuple(ToolStep(step=call.step, call=call.id, name=call.name) for call in free[:at_once])
    waits = [call.hold.until for call in group if call.hold is not None and call.child is None]
    return Wait(until=min(waits, default=None), is_parked=turn.is_parked or not waits)
