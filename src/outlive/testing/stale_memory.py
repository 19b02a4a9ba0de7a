"""What every event log promises while another one writes to the same database: what it remembers is out of date then,
and refuses nothing. Only what the database says now does.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from outlive.base import ConversationId, StepId, TurnId, new_step_id, new_turn_id
from outlive.conversation.events import (
    ConversationArchived,
    EventData,
    MachineAttached,
    MessageSent,
    ModelResponded,
    StepStarted,
    TurnFinished,
)
from outlive.conversation.log import HAS_MACHINE, Append, Appended, EventLog, Writer
from outlive.testing.conversations import (
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


class Moved(NamedTuple):
    """A conversation that moved on (to event 15) after a log had last looked at it (at event 5)."""

    id: ConversationId
    over: TurnId
    open: TurnId
    abandoned: StepId
    fenced: StepId
    sealed: StepId


SEEN, HEAD = 5, 15


async def move_on(conversation: ConversationId, log: EventLog, other: EventLog) -> Moved:
    """`other` has seen half of it."""
    moved = Moved(conversation, new_turn_id(), new_turn_id(), new_step_id(), new_step_id(), new_step_id())
    await other.append(message(conversation, "go", turn=moved.over))
    await other.append(start(conversation, moved.abandoned, 1, turn=moved.over))
    await other.append(start(conversation, moved.fenced, 1, turn=moved.over))
    assert (await other.append(attached(conversation, "mach_1"))).seqs == (SEEN,)
    await log.append(start(conversation, moved.fenced, 2, turn=moved.over))
    await log.append(batch(conversation, TurnFinished(outcome="done"), turn=moved.over))
    await log.append(message(conversation, "go on", turn=moved.open, key="sent"))
    await log.append(attached(conversation, "mach_2")._replace(instead_of="mach_1"))
    for attempt in (1, 2):
        await log.append(start(conversation, moved.sealed, attempt, turn=moved.open))
    await log.append(seal(conversation, moved.sealed, 2, turn=moved.open))
    await log.append(message(conversation, "another"))
    assert (await log.append(batch(conversation, ConversationArchived()))).seqs == (HEAD - 1,)
    await log.append(start(conversation, new_step_id(), 1, turn=moved.open))
    return moved


def attached(conversation: ConversationId, machine: str) -> Append:
    return batch(conversation, MachineAttached(machine=machine))


def of_new_step(moved: Moved, *data: EventData) -> Append:
    started = StepStarted(kind="model", name="demo:")
    return of_step(moved.id, Writer(new_step_id(), 1, 0), started, *data, turn=moved.open)


def going_on(moved: Moved, step: StepId, attempt: int) -> Append:
    answer = ModelResponded(text="said", model="demo:")
    return of_step(moved.id, Writer(step, attempt, 7), answer, turn=moved.open)


# What is tried, and how it ends: with a code, or (None) in the log.
TRIED: dict[str, tuple[Callable[[Moved], Append], str | None]] = {
    "a step": (of_new_step, None),
    "a step at the head": (lambda c: of_new_step(c)._replace(expect=HEAD), None),
    "a step where it was": (lambda c: of_new_step(c)._replace(expect=SEEN), "append.moved"),
    "a step where it never was": (lambda c: of_new_step(c)._replace(expect=99), "append.moved"),
    "a step of the turn that is over": (lambda c: of_new_step(c)._replace(turn=c.over), "turn.over"),
    "a step of no turn": (lambda c: of_new_step(c)._replace(turn=None), "turn.over"),
    "the end of the turn": (lambda c: of_new_step(c, TurnFinished(outcome="done")), None),
    "a machine instead of this": (
        lambda c: of_new_step(c, MachineAttached(machine="mach_3"))._replace(instead_of="mach_2"),
        None,
    ),
    "a machine instead of that": (
        lambda c: of_new_step(c, MachineAttached(machine="mach_3"))._replace(instead_of="mach_1"),
        HAS_MACHINE,
    ),
    "a machine besides": (lambda c: of_new_step(c, MachineAttached(machine="mach_3")), HAS_MACHINE),
    "the machine that was": (lambda c: of_new_step(c, MachineAttached(machine="mach_1")), HAS_MACHINE),
    "a message": (lambda c: message(c.id, "no more"), "conversation.archived"),
    "a message of a step": (lambda c: of_new_step(c, MessageSent(message="m", text="t")), "conversation.archived"),
    "what was sent": (lambda c: message(c.id, "no more", key="sent"), "append.key_reused"),
    "an abandoned step": (lambda c: going_on(c, c.abandoned, 1), "step.abandoned"),
    "a fenced step": (lambda c: going_on(c, c.fenced, 1), "step.fenced"),
    "a sealed step": (lambda c: going_on(c, c.sealed, 2), "step.sealed"),
    "a sealed step once more": (lambda c: start(c.id, c.sealed, 3, turn=c.open), "step.sealed"),
    "an attempt before": (lambda c: going_on(c, c.sealed, 1), "step.fenced"),
    "a step that is not there": (lambda c: going_on(c, new_step_id(), 1), "step.not_started"),
}


class StaleMemoryContract:
    """Part of `EventLogContract`."""

    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_a_step_at_the_true_head_is_begun_though_another_writer_moved_it(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation = await new_conversation(catalog)
            for head in (3, 6, 9):
                await other.append(message(conversation, "there"))
                await log.append(message(conversation, "here"))
                begun = start(conversation, new_step_id(), 1)._replace(expect=head)
                assert (await other.append(begun)).seqs == (head + 1,)

    async def test_a_step_of_a_turn_that_another_writer_opened_is_begun(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation = await new_conversation(catalog)
            await other.append(message(conversation, "no turn is open"))
            for _ in range(3):  # at first it remembers none as open, then the one before
                turn = new_turn_id()
                await log.append(message(conversation, "go", turn=turn))
                await other.append(start(conversation, new_step_id(), 1, turn=turn))
                await log.append(batch(conversation, TurnFinished(outcome="done"), turn=turn))

    async def test_a_step_attaches_a_machine_instead_of_one_that_another_writer_attached(
        self, place: StorePlace
    ) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation = await new_conversation(catalog)
            await other.append(attached(conversation, "mach_1"))
            await log.append(attached(conversation, "mach_2")._replace(instead_of="mach_1"))
            writer = Writer(new_step_id(), 1, 0)
            data = StepStarted(kind="tool", name="shell"), MachineAttached(machine="mach_3")
            await other.append(of_step(conversation, writer, *data)._replace(instead_of="mach_2"))
            assert (await catalog.get(conversation)).machine == "mach_3"

    @pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside others"])
    async def test_what_is_refused_is_refused_by_what_the_log_says_now(self, place: StorePlace, is_alone: bool) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            another = await new_conversation(catalog)
            for tried, (make, ends) in TRIED.items():
                moved = await move_on(await new_conversation(catalog), log, other)
                # The first goes alone; the others wait for it, and then go together.
                beside = [] if is_alone else [message(another, "before"), message(another, "beside")]
                *fine, answer = await attempt_all(other, [*beside, make(moved)])
                assert all(isinstance(each, Appended) for each in fine), tried
                assert (None if isinstance(answer, Appended) else answer.code) == ends, tried
                events = await whole(log, moved.id)
                if isinstance(answer, Appended):
                    assert list(answer.events) == events[HEAD:], tried
                else:
                    assert len(events) == answer.facts.get("head", HEAD) == HEAD, tried
                    assert ends != HAS_MACHINE or "'mach_2'" in answer.message, tried
