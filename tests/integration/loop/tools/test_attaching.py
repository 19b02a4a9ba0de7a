"""A machine that a person makes for a conversation, beside those that the conversation makes itself: one is its
machine, and of the others those that nobody will look at again are let go."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace

import anyio.lowlevel
import pytest

from integration.loop.tools.workshop import PERSON, Workshop
from outlive.base import (
    ConflictError,
    ConversationId,
    FencedError,
    MachineId,
    OperationId,
    SystemClock,
    derive,
    new_operation_id,
    new_terminal_id,
    to_text,
)
from outlive.conversation.events import MachineAttached, NewEvent, TurnFinished, TurnInterrupted
from outlive.conversation.log import Append
from outlive.loop.attaching import Attacher
from outlive.loop.fork_sweeper import ForkSweeper
from outlive.loop.machine_forks import MachineForks, Source, machine_of
from outlive.loop.state import Binding
from outlive.loop.subagents.link import Link, child_of
from outlive.loop.subagents.starting import make_child
from outlive.loop.tools import ToolContext
from outlive.loop.tools.machine import ConversationMachines
from outlive.loop.tools.reach import ToolMachine
from outlive.loop.unnamed_machines import YOUNG
from outlive.machine.keeper import MachineKeeper
from outlive.machine.lifecycle import Change
from outlive.machine.status import Machine
from outlive.machine.terminal.door import Close, OpenTerminal

pytestmark = pytest.mark.anyio

_CLOCK = SystemClock()
MADE, TOLD = ["conversation.created", "message.sent"], ["conversation.created", "message.sent", "machine.attached"]


class Site:
    """A workshop, and what people and sweepers do there."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.conversations = workshop.conversations
        self.keeper: MachineKeeper = workshop.machines.keeper
        self.records = workshop.machines.records
        self.forks = MachineForks(self.conversations, self.keeper, self.records, _CLOCK)
        self.attacher = Attacher(self.conversations, self.keeper, self.records)

    @property
    def machines(self) -> ConversationMachines:
        assert self.workshop.parts.machines is not None
        return self.workshop.parts.machines

    async def make(self, of: ConversationId, operation: OperationId | None = None) -> Machine:
        """A machine for it, as a person asks for one, or (its own operation) as it does; its log is not told."""
        return await self.machines._environments.create_machine(
            operation or new_operation_id(), environment="host", owner=PERSON.id, conversation=of
        )

    async def make_own(self, of: ConversationId) -> Machine:
        """As a turn that was cut off before it said so."""
        return await self.make(of, OperationId(derive("op", of)))

    async def give(self, of: ConversationId) -> Machine:
        machine = await self.make(of)
        await self.attacher.attach(of, machine, actor=PERSON.id)
        return machine

    async def name(self, of: ConversationId, machine: Machine) -> None:
        """As one who attached it and died."""
        attached = NewEvent(MachineAttached(machine=machine.id), to_text(_CLOCK.now()))
        await self.conversations.append(Append(of, (attached,), key=f"machine/{machine.id}/attached", actor="me"))

    async def end_turn(self, of: ConversationId) -> None:
        turn = (await self.conversations.get(of)).turn
        at = to_text(_CLOCK.now())
        events = tuple(NewEvent(each, at) for each in (TurnInterrupted(), TurnFinished(outcome="interrupted")))
        await self.conversations.append(Append(of, events, key="end", actor="other", turn=turn))

    async def sweep(self) -> int:
        machines = self.records.machines
        return await ForkSweeper(
            self.forks, self.attacher, self.conversations, machines, _CLOCK, every_s=1, settle_s=0
        ).sweep()

    async def states(self, *machines: Machine) -> list[str]:
        return [(await self.records.machines.get(each.id)).state for each in machines]


@pytest.fixture
def site(workshop: Workshop) -> Site:
    return Site(workshop)


async def test_a_machine_that_was_given_meanwhile_is_the_one_and_the_other_goes(site: Site) -> None:
    """Whoever saw that there was none, and stood still: what runs in the first never runs in another."""
    workshop = site.workshop
    of, of_fork = await workshop.converse(), await workshop.converse()
    context, seen, seen_fork = (
        workshop.context(of),
        await workshop.conversations.get(of),
        await workshop.conversations.get(of_fork),
    )
    for conversation in (of, of_fork):
        given = await site.give(conversation)
        if conversation == of:
            assert await site.machines._make(seen, context) is None
        else:
            source = Source(given.id, await site.keeper.checkpoint(given.id))
            assert (await site.forks.give_machine(seen_fork, source)).machine == given.id
        assert (await workshop.machine(conversation)).id == given.id
        assert (await site.records.machines.get(machine_of(conversation))).state == "deleted"
        assert await workshop.types(conversation) == TOLD


async def test_what_was_made_by_a_turn_that_was_cut_off_goes_when_a_person_gives_a_machine(site: Site) -> None:
    of = await site.workshop.converse()
    own = await site.make_own(of)
    second = await site.make(of)  # of a person, who has not had it attached
    given = await site.give(of)
    third = await site.give(of)  # it has one
    assert await site.states(own, second, given, third) == ["deleted", "running", "running", "running"]
    assert await site.sweep() == 0
    assert await site.states(second, given, third) == ["running"] * 3


async def test_what_nobody_let_go_the_sweeper_does_unless_somebody_may_have_worked_in_it(site: Site) -> None:
    of, run_in, typed_in, old_of, between = [await site.workshop.converse() for _ in range(5)]
    own, run, typed, old, next_of = [await site.make_own(each) for each in (of, run_in, typed_in, old_of, between)]
    await site.workshop.machines.exec(run.id, "echo a person works here")
    terminal = OpenTerminal(terminal=new_terminal_id(), cols=80, rows=24, env={}, owner=PERSON.id)
    await site.workshop.doors.open(typed.id, typed.generation, terminal)
    await site.workshop.doors.act(typed.id, typed.generation, terminal.terminal, PERSON, Close())
    long_ago = old.created_at - YOUNG
    await site.records.machines.change(old.id, lambda _: Change({"created_at": long_ago}))
    given = [await site.make(each) for each in (of, run_in, typed_in, old_of)]
    for conversation, machine in zip((of, run_in, typed_in, old_of), given, strict=True):
        await site.name(conversation, machine)
    assert await site.sweep() == 1
    assert await site.sweep() == 0
    assert await site.states(own, run, typed, old, *given) == ["deleted", *["running"] * 7]
    assert (await site.workshop.machine(between)).id == next_of.id, "somebody was about to say that it is the one"


async def test_one_that_the_log_ever_named_stays_and_so_does_the_next_after_one_that_is_gone(site: Site) -> None:
    of = await site.workshop.converse()
    first = await site.make_own(of)
    await site.name(of, first)
    await site.keeper.do(first.id, "delete")
    following = await site.make(of, OperationId(derive("op", first.id, 1)))
    assert await site.sweep() == 0
    assert (await site.workshop.machine(of)).id == following.id
    given, at = await site.make(of), to_text(_CLOCK.now())  # as a subagent is begun in its parent's
    attached = NewEvent(MachineAttached(machine=given.id), at)
    await site.conversations.append(Append(of, (attached,), key="begin", actor="me", instead_of=following.id))
    assert await site.sweep() == 0
    assert await site.states(following, given) == ["running", "running"]


async def test_one_that_is_let_go_while_it_is_made_is_not_missed(site: Site) -> None:
    of = await site.workshop.converse()
    seen, context = await site.conversations.get(of), site.workshop.context(of)
    like = await site.make(of)
    own = like.model_copy(update={"id": machine_of(of), "state": "starting", "node": None, "generation": 0})
    await site.records.machines.create(own)
    await site.records.machines.change(own.id, lambda _: Change({"desired": "deleted"}))
    await site.name(of, like)
    assert await site.machines._make(seen, context) is None
    assert (await site.machines.ensure(context)).id == like.id


async def test_a_turn_that_is_over_gives_no_machine_and_in_an_archived_conversation_leaves_none(site: Site) -> None:
    """As in a race: the worker of one that was let go stood still while its machine was deleted."""
    of, lost_of = await site.workshop.converse(), await site.workshop.converse()
    lost = await site.workshop.machine(lost_of)
    for conversation in (of, lost_of):
        context, seen = site.workshop.context(conversation), await site.conversations.get(conversation)
        before = await site.workshop.types(conversation)
        await site.conversations.archive(conversation, actor=PERSON.id)
        await site.end_turn(conversation)
        await site.forks.delete_machines(conversation)
        with pytest.raises(FencedError) as fenced:
            await site.machines._make(seen, context)
        assert fenced.value.code == "turn.over"
        since = (await site.workshop.types(conversation))[len(before) :]
        assert since == ["conversation.archived", "turn.interrupted", "turn.finished"]
    made = [machine_of(of), MachineId(derive("mach", derive("op", lost.id, 1)))]
    assert [(await site.records.machines.get(each)).state for each in made] == ["deleted", "deleted"]
    # The same, by one who died before the log refused it.
    third = await site.make(of, OperationId(derive("op", made[0], 1)))
    assert await site.sweep() == 1
    assert await site.states(third) == ["deleted"]


async def test_what_a_turn_made_that_was_ended_is_there_for_the_next(site: Site) -> None:
    of = await site.workshop.converse()
    context, seen = site.workshop.context(of), await site.conversations.get(of)
    await site.end_turn(of)
    with pytest.raises(FencedError):
        await site.machines._make(seen, context)
    sent = await site.conversations.send(new_operation_id(), of, actor=PERSON.id, text="go on")
    assert await site.sweep() == 0
    assert (await site.machines.ensure(replace(context, turn=sent.turn))).id == machine_of(of)
    assert await site.states(await site.records.machines.get(machine_of(of))) == ["running"]


async def test_the_copy_of_a_fork_goes_if_it_cannot_be_woken_and_the_fork_has_another(site: Site) -> None:
    parent = await site.workshop.converse()
    source = Source((machine := await site.workshop.machine(parent)).id, await site.keeper.checkpoint(machine.id))
    of = await site.workshop.converse()
    seen = await site.conversations.get(of)
    copy = await site.forks._create(seen, source)
    await site.keeper.do(copy.id, "pause")
    given = await site.make(of)
    await site.name(of, given)
    assert (await site.forks.give_machine(seen, source)).machine == given.id
    assert await site.states(copy, given) == ["deleted", "running"]


async def test_a_fork_that_was_archived_meanwhile_gets_no_machine_and_none_is_left(site: Site) -> None:
    parent = await site.workshop.converse()
    source = Source((machine := await site.workshop.machine(parent)).id, await site.keeper.checkpoint(machine.id))
    of = await site.workshop.converse()
    seen = await site.conversations.get(of)
    await site.conversations.archive(of, actor=PERSON.id)
    with pytest.raises(ConflictError) as refused:
        await site.forks.give_machine(seen, source)
    assert refused.value.code == "conversation.archived"
    assert (await site.records.machines.get(machine_of(of))).state == "deleted"
    assert await site.workshop.types(of) == [*MADE, "conversation.archived"]


async def test_who_asks_again_for_a_machine_of_an_archived_conversation_is_told_what_became_of_it(site: Site) -> None:
    """Of two requests that died before they answered: one had told the log, the other not."""
    of, late = await site.workshop.converse(), await site.workshop.converse()
    operation, late_operation = new_operation_id(), new_operation_id()
    given, too_late = await site.make(of, operation), await site.make(late, late_operation)
    await site.attacher.attach(of, given, actor=PERSON.id)
    for conversation in (of, late):
        await site.conversations.archive(conversation, actor=PERSON.id)
    await site.attacher.check(of, operation)
    await site.attacher.attach(of, given, actor=PERSON.id)
    await site.attacher.check(late, late_operation)
    refused = []
    with pytest.raises(ConflictError) as error:
        await site.attacher.attach(late, too_late, actor=PERSON.id)
    refused.append(error.value.code)
    for conversation, again in ((late, late_operation), (of, new_operation_id())):
        with pytest.raises(ConflictError) as error:
            await site.attacher.check(conversation, again)
        refused.append(error.value.code)
    assert refused == ["conversation.archived"] * 3
    assert await site.states(given, too_late) == ["running", "deleted"]


@dataclass(frozen=True, slots=True)
class SlowContext(ToolContext):
    """Until its machine is there, others do something."""

    meanwhile: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint

    async def machine(self) -> ToolMachine:
        found = await ToolContext.machine(self)
        await self.meanwhile()
        return found


async def test_a_subagent_that_is_given_a_machine_while_it_is_made_begins_in_its_parents(site: Site) -> None:
    of = await site.workshop.converse()
    context = site.workshop.context(of)
    child = child_of(context.step)
    given: list[Machine] = []

    async def give() -> None:
        given.append(await site.give(child))

    slow = SlowContext(**{each.name: getattr(context, each.name) for each in fields(context)}, meanwhile=give)
    link = Link(
        **{"conversation": of, "turn": context.turn, "step": context.step, "call": "call_1", "start": 1},
        **{"attempt": 1, "detached": False, "machine": "same", "depth": 1},
    )
    made = await make_child(site.conversations, slow, link, Binding("coder", 1, "demo:"), "Go.", None)
    assert made.id == child
    events = await site.workshop.events(child)
    assert [event.type for event in events] == [
        *("conversation.created", "machine.attached", "message.sent", "machine.attached")
    ]
    assert [event.data["machine"] for event in events[1::2]] == [given[0].id, machine_of(of)]
    assert (await site.conversations.get(child)).machine == machine_of(of)
    assert await site.states(*given) == ["running"]
