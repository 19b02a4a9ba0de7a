"""A step that fails half-way, or whose answer is lost, leaves nothing behind and nothing stuck while the node lives."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from descriptors import no_descriptors_left
from eventually import eventually
from machine_rooms import open_machine_room
from outlive.base import EffectId, MachineId, UnavailableError
from outlive.machine import lifecycle
from outlive.machine.backends.gvisor.processes import find_by_argument
from outlive.machine.backends.gvisor.runsc import bundle_argument
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.machine.node.node import Node
from outlive.machine.node.strays import look_for_strays
from outlive.machine.records import Decide, EffectBegin, Effects, Gone, MachineRecords
from outlive.machine.sandbox import Sandbox, Sandboxes
from outlive.machine.status import Effect, Machine, State

pytestmark = pytest.mark.anyio


class Forgetful:
    """Records whose answer to one change is lost, after it was made; and that are away for a while."""

    def __init__(self, records: MachineRecords) -> None:
        self._records = records
        self.lost: State | None = None  # the change to this state gets no answer
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    async def get(self, machine: MachineId) -> Machine:
        if self.is_away:
            raise UnavailableError("storage.unreachable", "away")
        return await self._records.get(machine)

    async def change(self, machine: MachineId, decide: Decide, *, gone: Gone | None = None) -> Machine:
        before = await self.get(machine)
        changed = await self._records.change(machine, decide, gone=gone)
        if self.lost == changed.state != before.state:
            self.lost = None
            raise UnavailableError("storage.unreachable", "the answer was lost")
        return changed


def folders(node: Node) -> list[str]:
    return [path.name for path in (node.parts.path / "machines").glob("*/*")]


async def sandbox_of(node: Node, machine: MachineId) -> Sandbox:
    return next(each for each in await node.parts.sandboxes.find_all() if each.machine == machine)


async def test_a_machine_whose_coming_up_got_no_answer_comes_up_again(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        records = Forgetful(room.records.machines)
        async with room.node(machines=records) as node:
            machine = await room.create()
            await room.exec(machine.id, "echo kept > /workspace/kept")
            await room.keeper.do(machine.id, "hibernate")
            await room.records.machines.change(machine.id, lambda found: lifecycle.ask(found, "wake", found.changed_at))
            records.lost = "running"
            with pytest.raises(UnavailableError):
                await node.wake(machine.id)
            failed = await room.records.machines.get(machine.id)
            assert (failed.state, failed.node) == ("hibernated", None)
            assert folders(node) == []
            assert (await room.exec(machine.id, "cat /workspace/kept")).stdout == "kept\n"


async def test_a_hibernation_that_got_no_answer_leaves_nothing_that_runs(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        records = Forgetful(room.records.machines)
        async with room.node(machines=records) as node:
            machine = await room.create()
            records.lost = "hibernated"
            await room.keeper.do(machine.id, "hibernate")
            assert records.lost is None
            assert await node.parts.sandboxes.state(await sandbox_of(node, machine.id)) == "paused"
            await look_for_strays(node)
            assert folders(node) == []
            assert (await room.exec(machine.id, "echo on")).stdout == "on\n"


async def test_the_disk_of_a_dead_machine_stays_until_it_could_be_saved(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        records = Forgetful(room.records.machines)
        async with room.node(machines=records) as node:
            machine = await room.create()
            await room.exec(machine.id, "echo kept > /workspace/kept")
            resident = node.residents.get(machine.id, machine.generation)
            for pid in find_by_argument(bundle_argument(resident.sandbox.path / "bundle")):
                os.kill(pid, signal.SIGKILL)

            async def is_dead() -> bool:  # a signal is not the end: that takes the kernel a moment
                return await node.parts.sandboxes.state(resident.sandbox) == "dead"

            await eventually(is_dead)
            records.is_away = True
            with pytest.raises(UnavailableError):
                await node.adoption.lose(resident, "its sandbox ended")
            assert folders(node) == [str(machine.generation)]
            records.is_away = False
            await look_for_strays(node)
            assert (await room.exec(machine.id, "cat /workspace/kept")).stdout == "kept\n"


async def test_a_sandbox_that_was_left_paused_goes_on(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        await node.parts.sandboxes.pause(node.residents.get(machine.id, machine.generation).sandbox)
        await look_for_strays(node)
        assert (await room.exec(machine.id, "echo on")).stdout == "on\n"


class Stiff:
    """Sandboxes the first of which to be frozen is not."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self.refused: list[MachineId] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandboxes, name)

    async def freeze(self, sandbox: Sandbox) -> None:
        if not self.refused:
            self.refused.append(sandbox.machine)
            raise UnavailableError("sandbox.not_frozen", "Not now.")
        await self._sandboxes.freeze(sandbox)


def doors() -> int:
    """Sockets of ours on which a guest is waited for."""
    held = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)}
    rows = [line.split() for line in Path("/proc/self/net/unix").read_text().splitlines()[1:]]
    listening = [row for row in rows if row[3] == "00010000" and row[-1].endswith("ctl.sock.new")]
    return sum(f"socket:[{row[6]}]" in held for row in listening)


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")  # the one that lists them is closed by now


async def test_a_machine_that_could_not_be_taken_up_at_first_has_one_door_and_is_taken_up(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node() as node:
            machine = await room.create()
            await room.keeper.do(machine.id, "pause")
            await node.parts.sandboxes.thaw(await sandbox_of(node, machine.id))  # as if it had never been frozen
        stiff = Stiff(open_gvisor_sandboxes(tmp_path / "a", room.cgroup("a")))
        before = doors()
        async with room.node(sandboxes=stiff) as node:
            assert stiff.refused == [machine.id]
            assert node.residents.find(machine.id) is None
            await eventually(lambda: doors() == before)
            await look_for_strays(node)
            assert await node.parts.sandboxes.state(await sandbox_of(node, machine.id)) == "frozen"
            assert doors() == before + 1
            await room.keeper.do(machine.id, "resume")
            assert (await room.exec(machine.id, "echo on")).stdout == "on\n"


async def test_a_record_without_a_sandbox_is_lost_and_says_so(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        resident = node.residents.get(machine.id, machine.generation)
        resident.end("removed")
        node.residents.remove(resident)
        await node.parts.sandboxes.destroy(resident.sandbox)
        await look_for_strays(node)
        assert (await room.records.machines.get(machine.id)).state == "lost"


async def test_a_look_for_which_no_descriptor_is_left_is_tried_again(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        await node.parts.sandboxes.pause(node.residents.get(machine.id, machine.generation).sandbox)
        with no_descriptors_left():
            await look_for_strays(node)
        await look_for_strays(node)
        assert (await room.exec(machine.id, "echo on")).stdout == "on\n"


class Late:
    """A journal whose answer to a second `begin` was read before the first run ended."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._first: dict[EffectId, Effect] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._effects, name)

    async def begin(self, machine: MachineId, effect: EffectId, **fields: Any) -> EffectBegin:
        begun = await self._effects.begin(machine, effect, **fields)
        return EffectBegin(self._first.setdefault(effect, begun.effect), begun.is_new)


async def test_a_command_asked_for_again_while_it_ends_is_not_run_again(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node(effects=Late(room.records.effects)) as node:
        machine = await room.create()
        command = "echo once >> /workspace/ran"
        await room.exec(machine.id, command, effect_id="eff-once")
        await eventually(lambda: node.runs.find(machine.id, EffectId("eff-once")) is None)
        again = await room.exec(machine.id, command, effect_id="eff-once")
        assert (again.state, again.exit_code) == ("finished", 0)
        assert (await room.exec(machine.id, "cat /workspace/ran")).stdout == "once\n"


async def test_a_full_disk_of_the_host_ends_the_waiting_and_not_the_node(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        (node.parts.path / "spool").write_text("in the way")
        with pytest.raises(UnavailableError) as refused:
            await room.exec(machine.id, "head -c 1000000 /dev/zero")
        assert refused.value.code == "node.spool"
        assert (await room.exec(machine.id, "echo on")).stdout == "on\n"
