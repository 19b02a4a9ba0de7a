"""Terminals of machines that nobody uses, or that a person has stopped: whoever comes finds them as they were."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, BOT, Watcher, act, open_terminal, type_in
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import ConflictError
from outlive.machine.node.idle import IdlePolicy
from outlive.machine.node.node import Node
from outlive.machine.node.watch import watch_residents
from outlive.machine.status import Machine
from outlive.machine.terminal.door import Take

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _watched_node(room: MachineRoom, policy: IdlePolicy) -> AsyncIterator[Node]:
    async with room.node(idle=policy) as node, anyio.create_task_group() as group:
        group.start_soon(watch_residents, node)
        yield node
        group.cancel_scope.cancel()


def _is_frozen(node: Node, machine: Machine) -> bool:
    return "idle" in node.residents.get(machine.id, machine.generation).frozen


async def test_a_terminal_alone_keeps_no_machine_awake_and_whoever_attaches_or_types_thaws_it(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, _watched_node(room, IdlePolicy(0.5, None)) as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine)
        await eventually(lambda: _is_frozen(node, machine), 30)
        watcher = Watcher()
        async with watcher.at(node, machine, terminal, ANN, "type"):
            assert not _is_frozen(node, machine)
            await watcher.send(b"echo tha''wed\n")
            await watcher.until_seen(b"thawed\r\n")
            resident = node.residents.get(machine.id, machine.generation)
            await eventually(lambda: resident.quiet_s > 2.5, 30)
            assert not _is_frozen(node, machine), "somebody is here"
        await eventually(lambda: _is_frozen(node, machine), 30)
        await type_in(node, machine, terminal, ANN, "echo ty''ped\n")
        await eventually(lambda: _is_frozen(node, machine), 30)
        async with watcher.at(node, machine, terminal):
            await watcher.until_seen(b"typed\r\n")


async def test_a_job_in_front_of_a_shell_keeps_its_machine_awake_and_a_full_screen_program_does_not(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room, _watched_node(room, IdlePolicy(0.5, None)) as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine)
        watcher = Watcher()
        async with watcher.at(node, machine, terminal):  # it stays awake until the job is in front
            await watcher.until_seen(b"$ ")
            await type_in(node, machine, terminal, ANN, "echo be''gun; sleep 4; echo do''ne\n")
            await watcher.until_seen(b"begun\r\n")
        resident = node.residents.get(machine.id, machine.generation)
        host = node.terminals._hosts[terminal]
        frozen_before_done = False

        async def is_done() -> bool:
            nonlocal frozen_before_done
            frozen_before_done = frozen_before_done or bool(resident.frozen)
            return "done" in host.recorder.screen.text()

        await eventually(is_done, 60)
        assert not frozen_before_done
        await eventually(lambda: _is_frozen(node, machine), 30)
        async with watcher.at(node, machine, terminal):
            await type_in(node, machine, terminal, ANN, "printf '\\033[?1049h'; sleep 1000\n")
            await eventually(lambda: host.is_full_screen, 30)
        await eventually(lambda: _is_frozen(node, machine), 30)


async def test_a_stopped_machine_can_be_looked_at_and_taken_and_nothing_typed_gets_in(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine)
        await type_in(node, machine, terminal, BOT, "echo sh''own\n")
        watcher = Watcher()
        async with watcher.at(node, machine, terminal):
            await watcher.until_seen(b"shown\r\n")
        await room.keeper.do(machine.id, "pause")
        late = Watcher(None)
        async with late.at(node, machine, terminal, BOT, "type"):
            await eventually(lambda: b"shown" in late.drawn, 30)
            await late.send(b"echo no\n")
            await eventually(lambda: bool(late.said("refused")), 30)
            view = await act(node, machine, terminal, ANN, Take())
            assert view.terminal.lease is not None
            assert view.terminal.lease.operator == ANN.id
        with pytest.raises(ConflictError, match="paused"):
            await type_in(node, machine, terminal, ANN, "echo no\n")
        await room.keeper.do(machine.id, "resume")
        await type_in(node, machine, terminal, ANN, "echo a''gain\n")
        async with watcher.at(node, machine, terminal):
            await watcher.until_seen(b"again\r\n")
        assert b"no" not in watcher.seen
