"""What machines have left on a node's disk goes with them, also if the node hears nothing of their end."""

import os
import signal
from pathlib import Path

import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, open_terminal, recorded, type_in
from leaks import leftovers
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import EffectId
from outlive.machine.backends.gvisor.processes import find_by_argument
from outlive.machine.backends.gvisor.runsc import bundle_argument
from outlive.machine.door import ExecRequest
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.node import Node
from outlive.machine.node.outputs import spool_of
from outlive.machine.node.strays import look_for_strays
from outlive.machine.node.terminals.spool import spool_folder
from outlive.machine.status import Machine

pytestmark = pytest.mark.anyio

_SIZE = 2_000_000
_LONG = ExecRequest(
    effect_id=EffectId("eff-long"), command=f"head -c {_SIZE} /dev/zero; while [ ! -e go ]; do sleep 0.05; done"
)


async def _print_much(node: Node, machine: Machine) -> Path:
    """A command that goes on: the file that holds what it has printed."""
    await NodeDoor(node).exec(machine.id, machine.generation, _LONG.model_copy(update={"background": True}))
    file = spool_of(node.parts.path, machine.id) / f"{_LONG.effect_id}.stdout"
    await eventually(lambda: file.exists() and file.stat().st_size == _SIZE)
    return file


def _left(room: MachineRoom, name: str = "a") -> list[str]:
    return leftovers(room.path / name, room.cgroup(name))


async def test_outputs_and_journals_of_a_machine_that_is_deleted_in_its_sleep_go(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine, other = await room.create(), await room.create()
        terminal = await open_terminal(node, machine)
        await type_in(node, machine, terminal, ANN, "echo shown\r")
        kept = [await _print_much(node, each) for each in (machine, other)]
        await look_for_strays(node)
        assert [file.stat().st_size for file in kept] == [_SIZE] * 2, "what runs is left alone"
        for each in (machine, other):
            await room.keeper.do(each.id, "hibernate")
        await look_for_strays(node)
        journal = spool_folder(node.parts.path, terminal)
        assert [path.exists() for path in (*kept, journal)] == [True] * 3, "what sleeps keeps what is not told yet"
        await room.keeper.do(machine.id, "delete")
        await look_for_strays(node)
        assert [path.exists() for path in (*kept, journal)] == [False, True, False]
        assert b"shown" in await recorded(room, node, terminal), "what was stored stays"
        await room.exec(other.id, "touch go")
        done = await NodeDoor(node).exec(other.id, 2, _LONG)
        assert (done.state, done.cut_bytes) == ("finished", 0)
        await room.keeper.do(other.id, "delete")
        assert _left(room) == []


async def test_outputs_of_a_command_that_ended_elsewhere_go_and_so_does_a_journal_that_went_on_there(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node("a") as node:
            machine = await room.create()
            terminal = await open_terminal(node, machine)
            await type_in(node, machine, terminal, ANN, "echo shown\r")
            await _print_much(node, machine)
            await room.keeper.checkpoint(machine.id)
        async with room.node("b") as other:
            await room.settler.settle(machine.id)
            moved = await room.keeper.get(machine.id)
            async with room.node("a") as node:
                await look_for_strays(node)
                assert spool_of(node.parts.path, machine.id).exists(), "it goes on, and may come back"
                await room.exec(machine.id, "touch go")
                assert (await NodeDoor(other).exec(machine.id, moved.generation, _LONG)).state == "finished"
                await eventually(lambda: spool_folder(other.parts.path, terminal).exists())
                await look_for_strays(node)
                assert _left(room) == []
            assert (await room.exec(machine.id, "echo on")).stdout == "on\n"


async def test_outputs_of_what_was_lost_with_its_sandbox_go(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node() as node:
            machine = await room.create()
            sandbox = node.residents.get(machine.id, machine.generation).sandbox
            await _print_much(node, machine)
        for pid in find_by_argument(bundle_argument(sandbox.path / "bundle")):
            os.kill(pid, signal.SIGKILL)

        async def is_dead() -> bool:  # a signal is not the end: that takes the kernel a moment
            return await node.parts.sandboxes.state(sandbox) == "dead"

        await eventually(is_dead)
        async with room.node("b"), room.node() as node:
            assert await room.records.effects.begun(machine.id) == []
            await look_for_strays(node)
            assert not spool_of(node.parts.path, machine.id).exists()
