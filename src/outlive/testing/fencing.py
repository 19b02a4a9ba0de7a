"""What every event log promises about the attempts of a step: who may write, who is fenced, and who is open when."""

from typing import NamedTuple

import anyio
import pytest

from outlive.base import FencedError, OutliveError, StepId, new_step_id, new_turn_id
from outlive.conversation.events import (
    SEALS,
    ApprovalRequested,
    Event,
    MachineAttached,
    MessageSent,
    StepStarted,
    ToolRequested,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
)
from outlive.conversation.log import Append, Appended, EventLog, OpenAttempt, Writer
from outlive.testing.conversations import (
    AT,
    StorePlace,
    at,
    attempt_all,
    batch,
    message,
    new_conversation,
    of_step,
    seal,
    start,
    whole,
)


class Fate(NamedTuple):
    """A row of the table in `append.py`: what came before, what is tried, and how it ends (None: it is appended)."""

    before: str
    attempt: int
    is_starting: bool
    ends: str | None


FATES = [
    Fate("none yet", 1, True, None),
    Fate("none yet", 1, False, "step.not_started"),
    Fate("open", 1, True, "step.fenced"),
    Fate("open", 1, False, "step.fenced"),
    Fate("open", 2, True, "step.already_started"),
    Fate("open", 2, False, None),
    Fate("open", 3, True, None),
    Fate("open", 3, False, "step.not_started"),
    Fate("sealed", 1, False, "step.fenced"),
    Fate("sealed", 2, True, "step.sealed"),
    Fate("sealed", 2, False, "step.sealed"),
    Fate("sealed", 3, True, "step.sealed"),
    Fate("sealed", 3, False, "step.sealed"),
    Fate("abandoned", 1, False, "step.fenced"),
    Fate("abandoned", 2, True, "step.abandoned"),
    Fate("abandoned", 2, False, "step.abandoned"),
    Fate("abandoned", 3, True, "step.abandoned"),
    Fate("abandoned", 3, False, "step.abandoned"),
]


START_AND_REQUEST = (
    StepStarted(kind="tool", name="shell"),
    ToolRequested(call="c", name="shell", arguments={}, effect="e"),
)


async def refusal_of(log: EventLog, append: Append) -> OutliveError:
    (answer,) = await attempt_all(log, [append])
    assert isinstance(answer, OutliveError)
    return answer


def expected_open(events: list[Event], upto: int) -> list[OpenAttempt]:
    """What `open_attempts` has to answer, told from the events alone."""
    opened: dict[StepId, OpenAttempt] = {}
    for event in events[:upto]:
        if event.type == "step.started" and event.step and event.attempt:
            opened[event.step] = OpenAttempt(event.step, event.attempt, event.seq, event.turn)
        elif event.type in SEALS and event.step:
            opened.pop(event.step, None)
        elif event.type in ("turn.finished", "turn.interrupted"):
            opened.clear()
    return sorted(opened.values(), key=lambda attempt: attempt.start)


class FencingContract:
    """Part of `EventLogContract`."""

    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    @pytest.mark.parametrize("fate", FATES, ids=lambda fate: "-".join(str(part) for part in fate))
    async def test_an_attempt_meets_its_fate(self, place: StorePlace, fate: Fate) -> None:
        async with at(place) as (log, catalog):
            conversation, step, turn = await new_conversation(catalog), new_step_id(), new_turn_id()
            await log.append(batch(conversation, TurnStarted(agent="a", version=1, model="demo:"), turn=turn))
            if fate.before != "none yet":
                await log.append(start(conversation, step, 1, turn=turn))
                await log.append(start(conversation, step, 2, turn=turn))
            if fate.before == "sealed":
                await log.append(seal(conversation, step, 2, turn=turn))
            if fate.before == "abandoned":
                await log.append(batch(conversation, TurnFinished(outcome="interrupted"), turn=turn))
            before = await whole(log, conversation)
            writer = Writer(step, fate.attempt, 7)
            going_on = ToolRequested(call="c", name="shell", arguments={}, effect="e")
            data = StepStarted(kind="model", name="demo:") if fate.is_starting else going_on
            (answer,) = await attempt_all(log, [of_step(conversation, writer, data, turn=turn)])
            if fate.ends is None:
                assert isinstance(answer, Appended)
                assert len(await whole(log, conversation)) == len(before) + 1
            else:
                assert isinstance(answer, OutliveError)
                assert answer.code == fate.ends
                assert await whole(log, conversation) == before

    async def test_a_turn_that_is_over_begins_nothing_any_more(self, place: StorePlace) -> None:
        """Whoever stood still while its turn was ended goes on through another connection, and remembers it as open."""
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation, turn, next_turn = await new_conversation(catalog), new_turn_id(), new_turn_id()
            await other.append(message(conversation, "go", turn=turn))
            late = of_step(conversation, Writer(new_step_id(), 1, 0), *START_AND_REQUEST, turn=turn)
            asks = batch(conversation, ApprovalRequested(approval="a", question="?", expires_at=AT), turn=turn)
            attaches = batch(conversation, MachineAttached(machine="mach_1"), turn=turn)
            begins = batch(conversation, TurnStarted(agent="a", version=1, model="demo:"), turn=turn)
            ended = batch(conversation, TurnInterrupted(), TurnFinished(outcome="interrupted"), turn=turn)
            assert (await log.append(ended)).seqs == (3, 4)
            for _ in range(2):  # at first it relies on what it remembers, then it has looked
                refused = [await refusal_of(other, each) for each in (late, asks, attaches)]
                assert [(type(each), each.code) for each in refused] == [(FencedError, "turn.over")] * 3
            await log.append(message(conversation, "go on", turn=next_turn))
            refused = [await refusal_of(other, each) for each in (late, asks, attaches, begins)]
            assert [each.code for each in refused] == ["turn.over"] * 4
            assert await log.head(conversation) == 5, "nothing of a refused batch is there"
            assert (await catalog.get(conversation)).turn == next_turn
            await other.append(start(conversation, new_step_id(), 1, turn=next_turn))

    async def test_of_an_end_and_a_step_at_once_the_step_came_before_or_is_refused(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            for _ in range(10):
                conversation, turn = await new_conversation(catalog), new_turn_id()
                await log.append(message(conversation, "go", turn=turn))
                starts = [start(conversation, new_step_id(), 1, turn=turn) for _ in range(4)]
                answers: list[Appended | OutliveError] = []

                async def step(appends: list[Append], into: list[Appended | OutliveError]) -> None:
                    into.extend(await attempt_all(other, appends))

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(step, starts, answers)
                    tasks.start_soon(log.append, batch(conversation, TurnFinished(outcome="interrupted"), turn=turn))
                events = await whole(log, conversation)
                assert events[-1].type == "turn.finished"
                assert sum(isinstance(answer, Appended) for answer in answers) == len(events) - 3
                codes = {answer.code for answer in answers if isinstance(answer, OutliveError)}
                assert codes <= {"turn.over"}

    async def test_attempts_that_start_in_one_transaction_are_open_as_the_log_says(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation, steps = await new_conversation(catalog), [new_step_id() for _ in range(3)]
            starts = [start(conversation, step, 1) for step in steps] + [start(conversation, steps[0], 2)]
            async with anyio.create_task_group() as tasks:
                # The first goes alone; the others wait for it, and then go together.
                for append in [message(conversation, "first"), *starts]:
                    tasks.start_soon(log.append, append)
            events = await whole(log, conversation)
            for upto in range(len(events) + 1):
                found = await log.open_attempts(conversation, upto)
                assert sorted(found, key=lambda attempt: attempt.start) == expected_open(events, upto)

    async def test_a_zombie_leaves_nothing_from_the_moment_it_is_superseded(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation, step = await new_conversation(catalog), new_step_id()
            await log.append(start(conversation, step, 1))
            zombies = [
                of_step(conversation, Writer(step, 1, n), MessageSent(message="m", text="zombie")) for n in range(2, 9)
            ]
            answers: list[Appended | OutliveError] = []

            async def be_a_zombie() -> None:
                answers.extend(await attempt_all(other, zombies))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(be_a_zombie)
                tasks.start_soon(log.append, start(conversation, step, 2))
            events = await whole(log, conversation)
            second = next(event.seq for event in events if event.attempt == 2)
            assert all(event.attempt == 2 for event in events if event.seq >= second)
            fenced = [answer for answer in answers if isinstance(answer, FencedError)]
            appended = [answer for answer in answers if isinstance(answer, Appended)]
            assert len(fenced) + len(appended) == len(zombies)
            assert all(answer.seqs[0] < second for answer in appended)
            with pytest.raises(FencedError):
                await other.append(seal(conversation, step, 1))
            assert await whole(log, conversation) == events

    async def test_open_attempts_are_told_for_every_moment(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            steps = [new_step_id() for _ in range(6)]
            turn = new_turn_id()
            story = [
                batch(conversation, TurnStarted(agent="a", version=1, model="demo:"), turn=turn),
                start(conversation, steps[0], 1, turn=turn),
                seal(conversation, steps[0], 1, turn=turn),
                start(conversation, steps[1], 1, turn=turn),
                start(conversation, steps[2], 1, turn=turn),
                message(conversation, "meanwhile"),
                start(conversation, steps[2], 2, turn=turn),
                start(conversation, steps[3], 1, turn=turn),
                seal(conversation, steps[2], 2, turn=turn),
                start(conversation, steps[3], 4, turn=turn),
                seal(conversation, steps[1], 1, turn=turn),
                batch(conversation, TurnFinished(outcome="failed"), turn=turn),
                start(conversation, steps[4], 1),
                start(conversation, steps[5], 1),
                batch(conversation, TurnFinished(outcome="done")),
            ]
            for append in story[:7]:
                await log.append(append)
            # The rest in as few transactions as it gets: what is opened and ended within one is told as well.
            assert all(isinstance(answer, Appended) for answer in await attempt_all(log, story[7:]))
            events = await whole(log, conversation)
            for moment in range(len(events) + 2):
                assert await log.open_attempts(conversation, moment) == expected_open(events, moment), moment
