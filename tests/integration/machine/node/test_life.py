"""Pause, checkpoint, fork, delete, two nodes: a machine is whole, or it says what is gone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import ConflictError, EffectId, MachineId, NotFoundError, new_machine_id
from outlive.machine.checkpoint import CheckpointStore, Manifest

pytestmark = pytest.mark.anyio


async def test_a_paused_machine_uses_no_cpu_and_refuses_all_but_resume(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        await room.exec(machine.id, "nohup sh -c 'while :; do :; done' >/dev/null 2>&1 &")
        paused = await room.keeper.do(machine.id, "pause")
        assert paused.state == "paused"
        sandbox = node.residents.get(machine.id, machine.generation).sandbox
        before = (await node.parts.sandboxes.usage(sandbox)).cpu_s
        for verb in ("hibernate", "wake"):
            with pytest.raises(ConflictError, match="paused"):
                await room.keeper.do(machine.id, verb)
        with pytest.raises(ConflictError, match="paused"):
            await room.exec(machine.id, "true")
        with pytest.raises(ConflictError, match="paused"):
            await room.keeper.checkpoint(machine.id)
        assert (await node.parts.sandboxes.usage(sandbox)).cpu_s == before
        await room.keeper.do(machine.id, "resume")
        assert (await room.exec(machine.id, "echo on")).stdout == "on\n"


async def test_one_that_died_while_it_stood_still_says_so_and_is_brought_back_by_a_resume(tmp_path: Path) -> None:
    """It is not woken to be stopped, so whoever stops it again must not be told to wait for that."""
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        await room.exec(machine.id, "echo kept > file")
        await room.keeper.checkpoint(machine.id)
        await room.keeper.do(machine.id, "pause")
        await node.adoption.lose(node.residents.get(machine.id, machine.generation), "its sandbox ended")
        assert (await room.keeper.get(machine.id)).state == "lost"
        with pytest.raises(ConflictError, match="resume or wake brings it back") as refused:
            await room.keeper.do(machine.id, "pause")
        assert refused.value.code == "machine.not_reached"
        await room.keeper.do(machine.id, "resume")
        assert (await room.exec(machine.id, "cat file")).stdout == "kept\n"


async def test_time_that_a_person_stopped_a_machine_does_not_count_for_its_commands(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        command = "sleep 1; echo done"
        await room.exec(machine.id, command, effect_id="eff-slow", background=True, timeout_s=6.0)
        await room.keeper.do(machine.id, "pause")
        resident = node.residents.get(machine.id, machine.generation)
        await eventually(lambda: resident.quiet_s > 7.0, within_s=30.0)
        await room.keeper.do(machine.id, "resume")
        done = await room.exec(machine.id, command, effect_id="eff-slow", timeout_s=6.0)
        assert (done.state, done.stdout) == ("finished", "done\n")


async def test_a_checkpoint_leaves_the_machine_running_and_the_second_one_adds_little(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        await room.exec(machine.id, "head -c 20000000 /dev/urandom > /workspace/big")
        first = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
        second = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
        assert first.has_memory
        assert second.has_memory
        assert first.new_bytes > 20_000_000
        assert second.new_bytes < first.new_bytes / 10
        assert (await room.exec(machine.id, "stat -c %s /workspace/big")).stdout == "20000000\n"


async def test_forks_share_the_past_and_part_from_there(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        parent = await room.create()
        await room.exec(parent.id, "echo common > /workspace/file; sleep 1000 & echo $! > pid")
        children = await room.keeper.fork(parent.id, [new_machine_id(), new_machine_id()], owner=parent.owner)
        for number, child in enumerate(children):
            assert child.state == "running"
            done = await room.exec(child.id, f"cat file; kill -0 $(cat pid) && echo lives; echo {number} > mine")
            assert done.stdout == "common\nlives\n"
        names = {(await room.exec(one.id, "cat /etc/machine-id; hostname")).stdout for one in (parent, *children)}
        assert len(names) == 3
        assert (await room.exec(parent.id, "ls")).stdout == "file\npid\n"


async def test_a_hibernated_machine_is_forked_without_being_woken(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        parent = await room.create()
        await room.exec(parent.id, "echo common > /workspace/file")
        await room.keeper.do(parent.id, "hibernate")
        [child] = await room.keeper.fork(parent.id, [new_machine_id()], owner=parent.owner)
        assert (await room.exec(child.id, "cat file")).stdout == "common\n"
        assert node.residents.find(parent.id) is None


class HeldStore:
    """A store that has read a checkpoint back only when somebody lets it; the first time."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self.is_verifying = anyio.Event()
        self.may_go_on = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def verify(self, manifest: Manifest) -> None:
        self.is_verifying.set()
        await self.may_go_on.wait()
        await self._store.verify(manifest)


async def test_a_fork_has_what_was_done_before_it_was_asked_for_also_while_an_older_checkpoint_is_being_made(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room:
        held = HeldStore(CheckpointStore(room.objects))
        async with room.node(store=held):
            machine = await room.create()
            child = new_machine_id()

            async def fork() -> None:
                await room.keeper.fork(machine.id, [child], owner=machine.owner)

            async with anyio.create_task_group() as group:
                group.start_soon(room.keeper.checkpoint, machine.id)
                with anyio.fail_after(60):
                    await held.is_verifying.wait()
                await room.exec(machine.id, "echo later > file")
                group.start_soon(fork)
                await eventually(lambda: _is_asked_for_more(room, machine.id), 60)
                held.may_go_on.set()
            assert (await room.exec(child, "cat file")).stdout == "later\n"


async def _is_asked_for_more(room: MachineRoom, machine: MachineId) -> bool:
    found = await room.records.machines.get(machine)
    return found.checkpoints_wanted > max(found.checkpoints_begun, found.checkpoints_made)


async def test_a_deleted_machine_is_gone_with_its_checkpoints_and_a_fork_of_it_stays(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        parent = await room.create()
        [child] = await room.keeper.fork(parent.id, [new_machine_id()], owner=parent.owner)
        await room.keeper.do(parent.id, "delete")
        with pytest.raises(NotFoundError):
            await room.keeper.get(parent.id)
        await room.keeper.do(child.id, "hibernate")
        assert (await room.exec(child.id, "echo here")).stdout == "here\n"


async def test_a_node_that_starts_again_finds_its_machines_paused_ones_too(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node():
            one, two = await room.create(), await room.create()
            await room.exec(one.id, "echo kept > /tmp/in-memory")
            await room.keeper.do(two.id, "pause")
        async with room.node() as node:
            assert (await room.exec(one.id, "cat /tmp/in-memory")).stdout == "kept\n"
            assert node.residents.get(two.id, two.generation).frozen == {"halted"}
            await room.keeper.do(two.id, "resume")
            assert (await room.exec(two.id, "echo on")).stdout == "on\n"


async def test_machines_of_a_node_that_is_gone_come_up_elsewhere_and_say_what_they_lost(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node("a"):
            machine = await room.create()
            await room.exec(machine.id, "echo saved > /workspace/file; echo memory > /tmp/file")
            await room.keeper.checkpoint(machine.id)
            await room.exec(machine.id, "echo later > /workspace/file", effect_id="eff-later")
            stopped = await room.records.effects.forestall(machine.id, EffectId("eff-never"), at=datetime.now(UTC))
            assert stopped is not None
        async with room.node("b") as other:
            await room.settler.settle(machine.id)
            moved = await room.keeper.get(machine.id)
            assert (moved.state, moved.node) == ("running", other.parts.node)
            assert (await room.exec(machine.id, "cat /workspace/file /tmp/file")).stdout == "saved\nmemory\n"
            events = [event for _, event in await room.records.machines.events(machine.id, after=0, limit=50)]
            [rolled_back] = [event for event in events if event.kind == "rolled_back"]
            assert rolled_back.data["effects"] == ["eff-later"], "what never began is not gone"
        async with room.node("a") as old:
            assert old.residents.find(machine.id) is None  # fenced: destroyed when the node came back


async def test_a_drained_node_leaves_everything_hibernated(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        one, two = await room.create(), await room.create()
        await room.exec(two.id, "echo kept > /workspace/file")
        await room.keeper.do(two.id, "pause")
        assert await node.drain() == []
        assert [(await room.keeper.get(m.id)).state for m in (one, two)] == ["hibernated", "hibernated"]
        await room.empty()
        with pytest.raises(ConflictError, match="paused"):  # the person's stop holds
            await room.exec(two.id, "true")
        await room.keeper.do(two.id, "resume")
        assert (await room.exec(two.id, "cat /workspace/file")).stdout == "kept\n"
