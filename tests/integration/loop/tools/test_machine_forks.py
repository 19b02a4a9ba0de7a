"""Conversations forked with their machine: from which checkpoint, what is said of what lies between, and what is left
by one that was cut off."""

from pathlib import Path
from typing import Any

import pytest

from integration.loop.tools.test_machine import bundle
from integration.loop.tools.workshop import Workshop
from outlive.base import (
    ConflictError,
    ConversationId,
    EffectId,
    InvalidError,
    MachineId,
    OperationId,
    OutliveError,
    SystemClock,
    derive,
    new_effect_id,
    new_operation_id,
    new_principal_id,
)
from outlive.conversation.events import ToolFinished, ToolRequested
from outlive.conversation.writer import start_step
from outlive.loop.attaching import Attacher
from outlive.loop.context import build_context
from outlive.loop.fork_sweeper import ForkSweeper
from outlive.loop.machine_forks import MachineForks
from outlive.loop.models.messages import Note
from outlive.machine import lifecycle

pytestmark = pytest.mark.anyio

_CLOCK = SystemClock()
PERSON = new_principal_id()


async def step(workshop: Workshop, of: ConversationId, command: str) -> tuple[EffectId, int]:
    """A whole tool step of the log; its effect, and the seq of its end."""
    context = workshop.context(of, new_effect_id())
    writer = await start_step(
        workshop.conversations,
        of,
        turn=context.turn,
        step=context.step,
        attempt=1,
        kind="tool",
        name="shell",
        actor="agent:coder",
    )
    effect = context.effect_id
    await writer.record(ToolRequested(call=effect, name="shell", arguments={"command": command}, effect=effect))
    done = await workshop.call(of, "shell", effect, command=command)
    sealed = await writer.seal(ToolFinished(call=effect, effect=effect, outcome="finished", output=done.output))
    return effect, sealed.seqs[0]


def forks_of(workshop: Workshop) -> MachineForks:
    return MachineForks(workshop.conversations, workshop.machines.keeper, workshop.machines.records, _CLOCK)


async def fork(workshop: Workshop, of: ConversationId, at: int | None = None) -> ConversationId:
    return (await forks_of(workshop).fork(new_operation_id(), of, at=at, actor=PERSON)).id


async def lose(workshop: Workshop, machine: MachineId) -> None:
    node, now = workshop.node.parts.node, _CLOCK.now()
    await workshop.machines.records.machines.change(
        machine, lambda found: lifecycle.declare_lost(found, node, now, reason="test")
    )


async def said(workshop: Workshop, of: ConversationId) -> dict[str, dict[str, Any]]:
    """What is in the fork's own part of the log, by type."""
    parent = (await workshop.conversations.get(of)).parent
    assert parent is not None
    return {event.type: event.data for event in await workshop.conversations.read(of, parent[1], 100)}


async def notes(workshop: Workshop, of: ConversationId) -> list[str]:
    messages = build_context(await workshop.events(of)).messages
    return [message.text for message in messages if isinstance(message, Note)]


async def test_a_fork_at_the_head_has_a_copy_of_the_live_machine_and_of_its_processes(workshop: Workshop) -> None:
    of = await workshop.converse()
    await step(workshop, of, "echo one > a; (sleep 1000 &)")
    made = await fork(workshop, of)
    told = await said(workshop, made)
    assert list(told) == ["conversation.created", "machine.attached", "machine.forked"]
    origin = (await workshop.conversations.get(of)).machine
    assert (told["machine.forked"]["origin"], told["machine.forked"]["ahead"]) == (origin, [])
    assert (await workshop.conversations.get(made)).machine == told["machine.attached"]["machine"] != origin
    await workshop.call(made, "shell", command="echo two > b")
    assert await workshop.exec(made, "cat a b; pgrep -c sleep") == "one\ntwo\n1\n"
    assert await workshop.exec(of, "ls") == "a\n"
    assert "a copy of the one before" in (await notes(workshop, made))[-1]
    # Nothing is said twice, and a fork of the fork has a machine of its own too.
    assert list(await said(workshop, made)) == list(told)
    assert await workshop.exec(await fork(workshop, made), "cat b") == "two\n"


async def test_a_fork_at_an_older_event_is_made_from_the_nearest_checkpoint_and_what_lies_between_is_said(
    workshop: Workshop,
) -> None:
    of = await workshop.converse()
    _, first = await step(workshop, of, "echo 1 >> a")
    await step(workshop, of, "echo 2 >> a")
    with pytest.raises(ConflictError) as refused:  # the machine went on, and was never saved
        await fork(workshop, of, first)
    assert refused.value.code == "fork.no_checkpoint"
    machine = MachineId(derive("mach", of))
    saved = await workshop.machines.keeper.checkpoint(machine)
    third, end_of_third = await step(workshop, of, "echo 3 >> a")
    fourth, _ = await step(workshop, of, "echo 4 >> a")
    heads = len(await workshop.conversations.list(limit=100))

    between = await fork(workshop, of, end_of_third)
    told = await said(workshop, between)
    assert told["machine.forked"]["checkpoint"] == told["machine.rolled_back"]["checkpoint"] == saved
    assert (told["machine.forked"]["ahead"], told["machine.rolled_back"]["effects"]) == ([], [third])
    assert await workshop.exec(between, "cat a") == "1\n2\n"
    assert 'gone: shell {"command": "echo 3 >> a"}.' in (await notes(workshop, between))[-1]

    before = await fork(workshop, of, first)  # there is only a later one
    told = await said(workshop, before)
    assert "machine.rolled_back" not in told
    assert len(told["machine.forked"]["ahead"]) == 1
    assert "what a call did that you are not told of" in (await notes(workshop, before))[-1]

    newest = await fork(workshop, of)
    assert await workshop.exec(newest, "cat a") == "1\n2\n3\n4\n"
    assert fourth not in str(await said(workshop, newest))
    assert len(await workshop.conversations.list(limit=100)) == heads + 3


async def test_what_has_no_machine_to_copy_is_refused_and_leaves_nothing(workshop: Workshop) -> None:
    of = await workshop.converse()
    with pytest.raises(InvalidError) as beyond:
        await fork(workshop, of, 99)
    assert beyond.value.code == "fork.beyond_head"
    keeper = workshop.machines.keeper
    codes = []
    for trouble in ("nothing", "pause", "lose", "delete"):
        if trouble == "pause":
            _, attached = await step(workshop, of, "true")
            machine = MachineId(derive("mach", of))
            await keeper.do(machine, "pause")
        if trouble == "lose":
            await lose(workshop, machine)
        if trouble == "delete":
            await keeper.do(machine, "delete")
        with pytest.raises(ConflictError) as refused:
            await fork(workshop, of)
        codes.append(refused.value.code)
    assert codes == ["fork.no_machine", "machine.paused", "machine.lost", "fork.machine_deleted"]
    with pytest.raises(ConflictError) as refused:
        await fork(workshop, of, attached)
    assert refused.value.code == "fork.machine_deleted"
    assert [each.id for each in await workshop.conversations.list(limit=10)] == [of]


async def test_the_repository_of_the_parent_is_in_the_copy_and_not_checked_out_again(
    workshop: Workshop, tmp_path: Path
) -> None:
    (tmp_path / "repo").mkdir()
    blob = await workshop.conversations.blobs.put(bundle(tmp_path / "repo"))
    of = await workshop.converse({"repo": {"blob": blob}})
    await step(workshop, of, "echo more >> README")
    made = await fork(workshop, of)
    workshop.forget()
    assert (await workshop.call(made, "read_file", path="README")).output == "Hello\nmore\n"


async def test_a_fork_that_was_cut_off_is_finished_by_whoever_comes_and_nothing_is_made_twice(
    workshop: Workshop,
) -> None:
    of = await workshop.converse()
    await step(workshop, of, "echo one > a")
    forks, conversations = forks_of(workshop), workshop.conversations
    machines = workshop.machines.records.machines

    async def cut_off(operation: OperationId) -> ConversationId:
        """As one who died with the machine up, and the log not told."""
        parent = await conversations.get(of)
        source = await forks.find_source(parent, parent.head)
        made = await conversations.fork(operation, parent, parent.head, actor=PERSON)
        await forks._create(made, source)
        return made.id

    operation = new_operation_id()
    asked_again = await cut_off(operation)
    await step(workshop, of, "echo two > b")  # its head has moved on
    assert (await forks.fork(operation, of, at=None, actor=PERSON)).id == asked_again
    by_sweeper, by_tool = await cut_off(new_operation_id()), await cut_off(new_operation_id())
    archived, lost = await cut_off(new_operation_id()), await cut_off(new_operation_id())
    assert (await workshop.machines.exec(MachineId(derive("mach", by_tool)), "cat b")).stdout == "two\n"
    await conversations.send(OperationId(derive("op", by_tool)), by_tool, actor=PERSON, text="go on")
    await workshop.call(by_tool, "shell", command="echo three > c")
    await conversations.archive(archived, actor=PERSON)
    await lose(workshop, MachineId(derive("mach", lost)))
    attacher = Attacher(conversations, workshop.machines.keeper, workshop.machines.records)
    sweeper = ForkSweeper(forks, attacher, conversations, machines, _CLOCK, every_s=1, settle_s=0)
    assert await sweeper.sweep() == 3
    assert await sweeper.sweep() == 0
    for each in (asked_again, by_sweeper, by_tool):
        told = [type for type in await said(workshop, each) if type != "message.sent"]
        assert told == ["conversation.created", "machine.attached", "machine.forked"]
    states = {}
    for each in (asked_again, by_sweeper, by_tool, archived, lost):
        states[each] = (await machines.get(MachineId(derive("mach", each)))).state
    assert list(states.values()) == ["running"] * 3 + ["deleted"] * 2
    # What cannot be brought up leaves neither a machine nor a conversation that anybody sees.
    assert (await conversations.get(lost)).archived_at is not None
    with pytest.raises(OutliveError):
        await forks.give_machine(await conversations.get(lost))
