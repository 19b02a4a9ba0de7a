"""Whatever happens while a turn runs, doing what `decide` says ends it, and does nothing twice."""

from collections import Counter, defaultdict
from itertools import pairwise
from random import Random

from hypothesis import event as seen
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.base import derive
from outlive.conversation.events import ConversationCreated, Event, Parent
from outlive.loop.context import Bounds, build_context
from outlive.loop.decide import decide
from outlive.loop.models.messages import AssistantMessage, ToolResultMessage, UserMessage
from unit.loop.logs import Log
from unit.loop.simulation import RUNS, Simulation, of_type


def tape_of(seed: int, length: int) -> list[int]:
    """Mostly things go well (0). What goes wrong first is what a shorter tape still has."""
    chance = Random(seed)
    return [chance.choice((0, chance.randrange(72))) for _ in range(length)]


# Not lists of integers: Hypothesis makes mostly short ones of them, in which hardly anything happens.
TAPES = st.builds(tape_of, st.integers(0, 2**32), st.integers(0, 250))


def starts_of(events: list[Event]) -> dict[int, int]:
    """The seq of each seal -> the seq at which its attempt started."""
    started = {(event.step, event.attempt): event.seq for event in of_type(events, "step.started")}
    sealed = of_type(events, "model.responded", "tool.finished")
    return {event.seq: started[event.step, event.attempt] for event in sealed}


def check_every_turn_ended_once(events: list[Event]) -> None:
    opened = {event.turn for event in of_type(events, "message.sent", "turn.started")}
    ended = Counter(event.turn for event in of_type(events, "turn.finished"))
    assert set(ended) <= opened
    assert all(count == 1 for count in ended.values())
    begun = {event.turn for event in of_type(events, "turn.started")}
    assert begun <= set(ended)
    assert {event.turn for event in of_type(events, "step.started")} <= begun


def check_no_message_fell_between(events: list[Event]) -> None:
    """A turn that ended as done, or because its model refused, has answered whatever came before its end."""
    gone = {event.data["message"] for event in of_type(events, "message.withdrawn")}
    sent = [each for each in of_type(events, "message.sent") if each.data["message"] not in gone]
    starts = starts_of(events)
    answered = max((starts[event.seq] for event in of_type(events, "model.responded")), default=0)
    settled = 0
    for event in events:
        match event.type:
            case "turn.interrupted":
                settled = event.seq
            case "turn.finished" if event.data["outcome"] in ("done", "failed", "waiting_expired"):
                by_then = of_type(events[: event.seq], "model.responded")
                newest = max((starts[answer.seq] for answer in by_then), default=0)
                waiting = [each for each in sent if settled < each.seq <= event.seq]
                if "limit" not in (event.data["reason"] or ""):
                    assert all(each.seq < newest for each in waiting)
                settled = event.seq
            case _:
                pass
    assert all(each.seq < max(answered, settled) for each in sent)


def check_nothing_was_done_twice(events: list[Event]) -> None:
    """A call has one step, one effect and one result; an answer was asked for because there was something new."""
    steps: defaultdict[str, set[tuple[str | None, str]]] = defaultdict(set)
    for event in of_type(events, "tool.requested"):
        assert event.step is not None
        assert event.data["effect"] == derive("eff", event.step)
        steps[event.data["call"]].add((event.step, event.data["effect"]))
    assert all(len(each) == 1 for each in steps.values())
    results = Counter(event.data["call"] for event in of_type(events, "tool.finished"))
    assert all(count == 1 for count in results.values())

    starts = starts_of(events)
    answers = of_type(events, "model.responded")
    for before, after in pairwise(answers):
        if before.turn == after.turn:
            new = [
                each
                for each in of_type(events, "message.sent", "tool.finished")
                if starts[before.seq] < each.seq < starts[after.seq]
            ]
            assert new, "the same question was asked again"
            if not any(
                starts[before.seq] < each.seq < starts[after.seq] for each in of_type(events, "message.hurried")
            ):
                assert {each["id"] for each in before.data["tool_calls"]} <= set(results)


def check_what_was_withdrawn_was_never_told(events: list[Event]) -> None:
    """Not to any attempt of any answer, whichever came first. What each message says is said once."""
    gone = {event.data["message"] for event in of_type(events, "message.withdrawn")}
    texts = {event.data["text"] for event in of_type(events, "message.sent") if event.data["message"] in gone}
    for event in of_type(events, "step.started"):
        if texts and event.data["kind"] == "model":
            messages = build_context(events, before=event.seq, bounds=Bounds(tokens=100_000)).messages
            assert not texts & {each.text for each in messages if isinstance(each, UserMessage)}


def check_what_was_held_ran_only_when_that_was_over(events: list[Event]) -> None:
    """Nothing that a person was asked about began before it was decided; and each was asked about once."""
    asked = Counter(event.data["step"] for event in of_type(events, "approval.requested", "wait.started"))
    assert all(count == 1 for count in asked.values())
    decided = {event.data["approval"]: event.seq for event in of_type(events, "approval.decided")}
    started = {event.step: event.seq for event in reversed(of_type(events, "step.started"))}
    for event in of_type(events, "approval.requested"):
        if (step := event.data["step"]) in started:
            assert decided[event.data["approval"]] < started[step]


def check_steps_have_dense_places(events: list[Event]) -> None:
    by_turn: defaultdict[str, set[str]] = defaultdict(set)
    for event in of_type(events, "step.started"):
        assert event.turn is not None
        assert event.step is not None
        by_turn[event.turn].add(event.step)
    for turn, steps in by_turn.items():
        places = {derive("step", turn, n) for n in range(1, 40)}
        assert steps <= places


def check_the_model_is_told_results_right_behind_calls(events: list[Event]) -> None:
    messages = list(build_context(events, bounds=Bounds(tokens=100_000)).messages)
    told = [message for message in messages if isinstance(message, AssistantMessage)]
    assert len(told) == len(of_type(events, "model.responded"))
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            behind = messages[place + 1 : place + 1 + len(message.tool_calls)]
            assert [each.call for each in behind if isinstance(each, ToolResultMessage)] == [
                call.id for call in message.tool_calls
            ]


@given(TAPES)
@settings(max_examples=600, deadline=None)
def test_every_turn_ends_nothing_is_done_twice_and_no_message_stays_unanswered(tape: list[int]) -> None:
    simulation = Simulation(tape)
    simulation.run()
    events = simulation.log.events
    assert simulation.log.summary.turn is None, "the log and the fold agree that nothing is open"
    check_every_turn_ended_once(events)
    check_no_message_fell_between(events)
    check_nothing_was_done_twice(events)
    check_what_was_withdrawn_was_never_told(events)
    check_what_was_held_ran_only_when_that_was_over(events)
    check_steps_have_dense_places(events)
    check_the_model_is_told_results_right_behind_calls(events)
    for each in of_type(events, "turn.finished"):
        seen(each.data["outcome"])


@given(TAPES, st.integers(1, 200))
@settings(max_examples=100, deadline=None)
def test_a_fork_anywhere_has_nothing_to_do_until_somebody_speaks(tape: list[int], at: int) -> None:
    simulation = Simulation(tape)
    simulation.run()
    shared = tuple(simulation.log.events[:at])
    fork = Log(ConversationCreated(parent=Parent(conversation=simulation.log.conversation, at=len(shared))), shared)
    assert decide(fork.state(), RUNS).nothing
    turn = fork.message("go on")
    plan = decide(fork.state(), RUNS)
    assert plan.begin is not None
    assert plan.turn == turn


def test_the_simulation_meets_what_it_is_for() -> None:
    """So that the properties above are not true of quiet turns only."""
    met: Counter[str] = Counter()
    for seed in range(700):
        simulation = Simulation(tape_of(seed, 150))
        simulation.run()
        events = simulation.log.events
        met["retries"] += sum((event.attempt or 0) > 1 for event in of_type(events, "step.started"))
        met["interrupts"] += len(of_type(events, "turn.interrupted"))
        met["turns"] += len(of_type(events, "turn.finished"))
        met["results"] += len(of_type(events, "tool.finished"))
        turns = [event.turn for event in of_type(events, "message.sent")]
        met["joined"] += len(turns) - len(set(turns))
        met["failed"] += sum(event.data["outcome"] == "failed" for event in of_type(events, "turn.finished"))
        met["withdrawn"] += len(of_type(events, "message.withdrawn"))
        met["ordered"] += len(of_type(events, "queue.ordered"))
        met["hurried"] += len(of_type(events, "message.hurried"))
        met["cut off"] += sum(each.data["stop_reason"] == "interrupted" for each in of_type(events, "model.responded"))
        met["parked"] += len(of_type(events, "turn.parked"))
        met["expired"] += sum(event.data["outcome"] == "waiting_expired" for event in of_type(events, "turn.finished"))
        met["decided"] += sum(event.data["decision"] != "expired" for event in of_type(events, "approval.decided"))
    assert min(met.values()) >= 10, met
    assert len(met) == 13
