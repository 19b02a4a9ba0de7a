"""Who types into a terminal on a node: a person takes it from an agent in the middle of its work, and not one byte of
the agent gets in after that was acknowledged; what was acknowledged survives the node."""

import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, BOT, Watcher, act, journal_of, open_terminal, operator, type_in
from machine_rooms import open_machine_room
from outlive.base import ConflictError, DeniedError, TerminalId
from outlive.machine.node.node import Node
from outlive.machine.node.terminals.keyboard import TYPE_WITHIN_S
from outlive.machine.status import Machine
from outlive.machine.terminal.door import Grant, Take, Yield
from outlive.machine.terminal.journal import Input, Leased, Mark

pytestmark = pytest.mark.anyio

LINE = 128 * 1024 + 4095  # bytes that a terminal's line of gVisor takes while nobody reads it


def _names(operators: list[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in operators]


async def test_not_one_byte_of_an_agent_gets_in_after_a_person_has_taken_the_terminal(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine, argv=("/bin/sh", "-c", "stty -echo; echo ready; exec cat"))
        agent, person = Watcher(), Watcher()
        async with (
            agent.at(node, machine, terminal, BOT, "type"),
            person.at(node, machine, terminal, ANN, "type"),
            anyio.create_task_group() as group,
        ):
            await agent.until_seen(b"ready")

            async def work() -> None:
                for number in range(1_000_000):
                    await agent.send(f"agent {number}\n".encode())

            group.start_soon(work)
            await person.until_seen(b"agent 20\r\n")
            view = await act(node, machine, terminal, ANN, Take())
            assert view.terminal.lease is not None
            assert view.terminal.lease.operator == ANN.id
            await person.send(b"person\n")
            await person.until_seen(b"person\r\n")
            await eventually(lambda: len(agent.said("refused")) > 3, 30)
            group.cancel_scope.cancel()
        after = bytes(person.seen).rpartition(b"person\r\n")[2]
        assert after == b"", "nothing of the agent after the person's first line"
        numbers = [int(n) for n in re.findall(rb"agent (\d+)\r\n", person.seen)]
        assert numbers == list(range(len(numbers))), "what got in before is whole"
        assert {"refused": {"lease": agent.said("lease")[-1], "code": "terminal.leased"}} in agent.words
        await _goes_on_when_it_may(node, machine, terminal, person.offset or 0)


async def _goes_on_when_it_may(node: Node, machine: Machine, terminal: TerminalId, end: int) -> None:
    """The agent knows what happened, and that it may type again."""
    with pytest.raises(ConflictError) as refused:
        await type_in(node, machine, terminal, BOT, "again\n")
    assert refused.value.code == "terminal.leased"
    assert refused.value.facts["operator"] == ANN.id
    with pytest.raises(DeniedError):
        await act(node, machine, terminal, BOT, Take())
    await act(node, machine, terminal, ANN, Yield())
    view = await type_in(node, machine, terminal, BOT, "again\n")
    assert view.terminal.lease is not None
    assert (view.terminal.lease.operator, view.terminal.lease.how) == (BOT.id, "input")
    assert view.terminal.lease.offset >= end


WAITING = "stty -echo -icanon; echo ready; until [ -e /tmp/go ]; do echo; sleep 0.1; done; exec cat -v"


@pytest.mark.parametrize("when", ["held", "free", "paused"])
async def test_what_an_agent_typed_and_the_program_has_not_read_is_given_up_when_somebody_takes_over(
    tmp_path: Path, when: str
) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine, argv=("/bin/bash", "-c", WAITING))
        agent = Watcher()
        async with agent.at(node, machine, terminal, BOT, "type"), anyio.create_task_group() as group:
            await agent.until_seen(b"ready")

            async def flood() -> None:
                for _ in range(5):
                    await agent.send(b"A" * 65_536)

            group.start_soon(flood)  # more than the line, the guest and the host would hold
            record = node.terminals._hosts[terminal].recorder
            await eventually(lambda: record.spool.input_offset > LINE + 128 * 1024, 30)
            if when == "free":
                await act(node, machine, terminal, BOT, Yield())
            elif when == "paused":
                await room.keeper.do(machine.id, "pause")
            await act(node, machine, terminal, ANN, Take())
            if when == "paused":
                await room.keeper.do(machine.id, "resume")
            await room.exec(machine.id, "touch /tmp/go")
            await type_in(node, machine, terminal, ANN, "person\n")
            await agent.until_seen(b"person")
            group.cancel_scope.cancel()
        before, _, after = bytes(agent.seen).partition(b"person")
        assert before.count(b"A") <= LINE, "only what was in the line already"
        assert b"A" not in after
        journal = journal_of(node, terminal)
        end = max(each.input_end for each in journal if isinstance(each, Input) and each.operator.id == BOT.id)
        told = [each.value for each in journal if isinstance(each, Mark) and each.kind == "given_up"]
        start = None if when == "paused" else before.count(b"A")
        assert {"from": start, "to": end} in told


async def test_who_leaves_while_the_program_does_not_read_leaves_a_terminal_that_can_be_typed_into(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine, argv=("/bin/bash", "-c", WAITING))
        agent = Watcher()
        async with agent.at(node, machine, terminal, BOT, "type"):
            await agent.until_seen(b"ready")
            for _ in range(5):
                await agent.send(b"A" * 65_536)
            host = node.terminals._hosts[terminal]
            await eventually(lambda: host.recorder.spool.input_offset > LINE + 128 * 1024, 30)
        await eventually(lambda: not host.audience.present, 30)
        await room.exec(machine.id, "touch /tmp/go")
        await type_in(node, machine, terminal, BOT, "again\n")
        async with agent.at(node, machine, terminal, BOT, "type"):
            await agent.until_seen(b"again")
        assert agent.seen.count(b"again") == 1


async def test_who_hangs_up_is_gone_at_once_though_the_program_has_yet_to_read_what_was_sent_before(
    tmp_path: Path,
) -> None:
    quiet = WAITING.replace("echo; sleep", "sleep")
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine, argv=("/bin/bash", "-c", quiet))
        agent, other = Watcher(), Watcher()
        async with other.at(node, machine, terminal, ANN):
            async with agent.at(node, machine, terminal, BOT, "type"):
                await agent.until_seen(b"ready")
                for _ in range(5):
                    await agent.send(b"A" * 65_536)
                host = node.terminals._hosts[terminal]
                await eventually(lambda: host.recorder.spool.input_offset > LINE + 128 * 1024, 30)
                left_at = node.parts.clock.monotonic()
            await eventually(lambda: [each.name for each in host.audience.present] == ["ann"], 30)
            assert node.parts.clock.monotonic() - left_at < TYPE_WITHIN_S / 2
            await eventually(lambda: [_names(told) for told in other.said("operators")[-1:]] == [["ann"]], 30)
            await room.exec(machine.id, "touch /tmp/go")
            await eventually(lambda: other.seen.count(b"A") == 5 * 65_536, 30)


async def test_a_lease_survives_the_node_and_is_freed_when_its_holder_stays_away(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node() as node:
            machine = await room.create()
            terminal = await open_terminal(node, machine)
            await act(node, machine, terminal, ANN, Take())
        async with room.node() as node:
            with pytest.raises(ConflictError, match="holds this terminal"):
                await type_in(node, machine, terminal, BOT, "echo no\n")
            await act(node, machine, terminal, ANN, Grant(operator=BOT))
            await type_in(node, machine, terminal, BOT, "echo y''es\n")
        async with room.node(lease_grace_s=5.0) as node:
            watcher, holder = Watcher(), Watcher()
            async with watcher.at(node, machine, terminal, operator("other"), "observe"):
                async with holder.at(node, machine, terminal, BOT, "type"):
                    await watcher.until_seen(b"yes\r\n")
                    host = node.terminals._hosts[terminal]
                    await eventually(lambda: node.parts.clock.monotonic() - host.keyboard.used_at > 6, 60)
                    assert node.terminals._hosts[terminal].terminal.lease is not None, "who is here keeps it"
                await eventually(lambda: watcher.said("lease")[-1:] == [None], 60)
            assert (await room.records.terminals.get(terminal)).lease is None
            assert b"no" not in watcher.seen
            host = node.terminals._hosts[terminal]
            journal = journal_of(node, terminal)
            changes = [(each.how, each.by.name if each.by else None) for each in journal if isinstance(each, Leased)]
            assert changes == [("take", "ann"), ("grant", "ann"), ("expiry", None)]
            typed = [(each.operator.name, each.data) for each in journal if isinstance(each, Input)]
            assert typed == [("bot", b"echo y''es\n")]
