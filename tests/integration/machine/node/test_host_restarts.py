"""After a host was started again: sandboxes dead, disks and cgroups gone, folders and pids of before still there.
And a disk that is there and cannot be saved: it is kept, that is said, and it costs one try at a time."""

import fcntl
import json
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, Watcher, open_terminal
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import (
    CheckpointId,
    ConflictError,
    EffectId,
    MachineId,
    NotFoundError,
    OutliveError,
    SystemClock,
    UnavailableError,
    new_effect_id,
)
from outlive.machine.backends.gvisor.cgroups import Cgroups, find_cgroups, parse_mounts
from outlive.machine.backends.gvisor.processes import find_by_argument, find_process
from outlive.machine.backends.gvisor.runsc import bundle_argument
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.machine.base import Base, Runtime
from outlive.machine.door import ExecRequest
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.node import Node
from outlive.machine.node.rescue import DISK_TRIES
from outlive.machine.node.resident import Resident
from outlive.machine.node.strays import look_for_strays
from outlive.machine.sandbox import Sandbox
from outlive.machine.status import Machine, MachineEvent

pytestmark = pytest.mark.anyio

_EXT4_SHUTDOWN, _AT_ONCE = 0x8004587D, struct.pack("I", 2)  # from then on it can neither be read nor written


class Clock(SystemClock):
    """Goes on as any does, and is put forward."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class NoBases:
    """What machines are made from is gone from the host as well."""

    async def base(self, reference: str, key: str | None) -> Base:
        raise NotFoundError("base.missing", f"Base {key} is not on this host.")

    async def runtime(self, key: str | None = None) -> Runtime:
        raise NotFoundError("runtime.missing", "The runtime is not on this host.")


def kill(sandbox: Sandbox) -> None:
    for pid in find_by_argument(bundle_argument(sandbox.path / "bundle")):
        os.kill(pid, signal.SIGKILL)


def cgroups_of_this_host() -> Cgroups:
    return find_cgroups(parse_mounts(Path("/proc/mounts").read_text()))


async def reboot(room: MachineRoom, name: str = "a") -> None:
    """What a power cut and the start after it leave of a node that is not there yet."""
    cgroups = cgroups_of_this_host()
    own = find_process(os.getpid())
    assert own is not None
    for sandbox in await open_gvisor_sandboxes(room.path / name, room.cgroup(name)).find_all():
        kill(sandbox)
        cgroup = f"/{room.cgroup(name)}/{sandbox.machine}-{sandbox.generation:08x}"
        cgroups.set_frozen(cgroup, False)  # what is frozen does not die
        await eventually(lambda cgroup=cgroup: cgroups.remove(cgroup))  # type: ignore[misc]
        for place in ("root", "disk"):
            await anyio.run_process(["umount", "-n", str(sandbox.path / place)])
        # Its pids are somebody else's by now: they are neither believed nor killed.
        record = sandbox.path / "sandbox.json"
        reused = [own.model_copy(update={"boot": "the one before"}).model_dump()] * 2
        record.write_text(json.dumps({**json.loads(record.read_text()), "processes": reused}))
        assert (sandbox.path / "disk.img").exists()


async def died(node: Node, machine: Machine) -> Resident:
    """Its sandbox has ended by itself; its disk is there."""
    resident = node.residents.get(machine.id, machine.generation)
    kill(resident.sandbox)

    async def is_dead() -> bool:
        return await node.parts.sandboxes.state(resident.sandbox) == "dead"

    await eventually(is_dead)
    return resident


@contextmanager
def objects_away(room: MachineRoom) -> Iterator[None]:
    """The object store cannot be reached."""
    place = room.path / "objects"
    place.rename(room.path / "elsewhere")
    try:
        yield
    finally:
        (room.path / "elsewhere").rename(place)


async def record_of(room: MachineRoom, machine: MachineId) -> Machine:
    return await room.records.machines.get(machine)


async def history(room: MachineRoom, machine: MachineId, kind: str) -> list[MachineEvent]:
    events = await room.records.machines.events(machine, after=0, limit=100)
    return [event for _, event in events if event.kind == kind]


async def effect_state(room: MachineRoom, machine: MachineId, effect: str) -> str:
    found = await room.records.effects.find(machine, EffectId(effect))
    assert found is not None
    return found.state


async def is_up_again(room: MachineRoom, machine: Machine) -> bool:
    found = await record_of(room, machine.id)
    return found.state == "running" and found.generation > machine.generation


def folders(room: MachineRoom) -> set[str]:
    return {f"{path.parent.name}/{path.name}" for path in (room.path / "a" / "machines").glob("*/*")}


async def test_after_its_host_was_started_again_a_machine_comes_back_from_its_checkpoint_and_says_what_is_gone(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node():
            saved, unsaved = await room.create(), await room.create()
            await room.exec(saved.id, "echo saved > /workspace/file; echo memory > /tmp/file")
            waits = "until [ -e /workspace/go ]; do sleep 0.05; done; echo went"
            await room.exec(saved.id, waits, effect_id="eff-in-it", background=True)
            checkpoint = await room.keeper.checkpoint(saved.id)
            await room.exec(saved.id, "echo later > /workspace/file", effect_id="eff-later")
            await room.exec(saved.id, "sleep 1000", effect_id="eff-late-and-runs", background=True)
            await room.exec(unsaved.id, "sleep 1000", effect_id="eff-runs", background=True)
        await reboot(room)
        async with room.node():
            await eventually(lambda: is_up_again(room, saved), within_s=30.0)
            assert (await room.exec(saved.id, "cat /workspace/file /tmp/file")).stdout == "saved\nmemory\n"
            [lost] = await history(room, saved.id, "lost")
            assert lost.data["reason"] == "its sandbox and its disk are gone"
            [rolled_back] = await history(room, saved.id, "rolled_back")
            assert rolled_back.data["checkpoint"] == checkpoint
            assert rolled_back.data["effects"] == ["eff-later", "eff-late-and-runs"]
            assert await effect_state(room, saved.id, "eff-late-and-runs") == "lost"
            await room.exec(saved.id, "touch /workspace/go")
            done = await room.exec(saved.id, waits, effect_id="eff-in-it")
            assert (done.state, done.stdout) == ("finished", "went\n"), "it was in the checkpoint, and goes on"

            found = await record_of(room, unsaved.id)
            assert (found.state, found.node, found.reason) == ("lost", None, "its sandbox and its disk are gone")
            assert await effect_state(room, unsaved.id, "eff-runs") == "lost"
            with pytest.raises(ConflictError, match="no checkpoint") as refused:
                await room.exec(unsaved.id, "true")
            assert refused.value.code == "machine.lost"

            kept, making = await room.records.checkpoints.living()
            assert (kept, making) == (frozenset({checkpoint}), frozenset[CheckpointId]())
            assert folders(room) == {f"{saved.id}/{(await record_of(room, saved.id)).generation}"}
            await room.keeper.do(saved.id, "delete")
            await room.keeper.do(unsaved.id, "delete")
            assert folders(room) == set()


async def test_one_that_a_person_had_paused_when_its_host_was_started_again_comes_back_by_a_resume(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node():
            machine = await room.create()
            await room.exec(machine.id, "echo saved > /workspace/file")
            await room.keeper.checkpoint(machine.id)
            await room.keeper.do(machine.id, "pause")
        await reboot(room)
        async with room.node():
            assert (await record_of(room, machine.id)).state == "lost"
            assert folders(room) == set()
            await room.keeper.do(machine.id, "resume")
            assert (await room.exec(machine.id, "cat /workspace/file")).stdout == "saved\n"


async def test_a_terminal_goes_on_after_the_host_of_its_machine_was_started_again_and_the_seam_is_told(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room:
        watcher = Watcher()
        async with room.node() as node:
            machine = await room.create()
            terminal = await open_terminal(node, machine)
            async with watcher.at(node, machine, terminal, ANN, "type"):
                await watcher.send(b"echo be''fore\n")
                await watcher.until_seen(b"before\r\n")
                await room.keeper.checkpoint(machine.id)
                await watcher.send(b"echo un''done; gone=1\n")
                await watcher.until_seen(b"undone\r\n")
        seen_to = watcher.offset
        await reboot(room)
        async with room.node() as node:
            await eventually(lambda: is_up_again(room, machine), within_s=30.0)
            woken = await record_of(room, machine.id)
            async with watcher.at(node, woken, terminal, ANN, "type"):
                await watcher.send(b"echo after-$gone-\n")
                await watcher.until_seen(b"after--")
            [seam] = watcher.said("seam")
            assert seen_to is not None
            assert seam["from"] <= seen_to <= seam["at"]
            assert watcher.said("gap") == [], "its journal outlives the host"


async def test_a_machine_whose_base_is_gone_with_its_disk_is_lost_all_the_same(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node():
            machine = await room.create()
        await reboot(room)
        async with room.node(bases=NoBases()):
            assert (await record_of(room, machine.id)).state == "lost"
            assert folders(room) == set()


async def test_a_disk_that_cannot_be_saved_yet_is_kept_and_that_is_said_and_its_tries_do_not_pile_up(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with open_machine_room(tmp_path) as room, room.node(clock=clock) as node:
        machine = await room.create()
        await room.keeper.checkpoint(machine.id)
        await room.exec(machine.id, "echo kept > /workspace/file")
        resident = await died(node, machine)
        with objects_away(room):
            with pytest.raises(UnavailableError):
                await node.adoption.lose(resident, "its sandbox ended")
            for _ in range(20):
                await look_for_strays(node)
                await look_for_strays(node)  # too early for another try
                clock.ahead_s += 60.0
            _, making = await room.records.checkpoints.living()
            assert len(making) == 1
            found = await record_of(room, machine.id)
            assert (found.state, found.node) == ("running", node.parts.node)
            assert "its sandbox ended, and its files are not saved yet" in (found.reason or "")
            assert [event.data["reason"] for event in await history(room, machine.id, "failed")] == [found.reason]
            request = ExecRequest(command="true", effect_id=new_effect_id())
            with pytest.raises(UnavailableError, match="not saved yet") as refused:
                await NodeDoor(node).exec(machine.id, machine.generation, request)
            assert refused.value.code == "machine.unsaved"
            assert await node.drain() == [machine.id], "whoever takes the host away is told"
            with pytest.raises(OutliveError, match="not saved yet"):
                await room.keeper.do(machine.id, "pause")
            assert "not saved yet" in ((await record_of(room, machine.id)).reason or ""), "it still says so"
        clock.ahead_s += 3_600.0
        await look_for_strays(node)
        await eventually(lambda: is_up_again(room, machine), within_s=30.0)
        assert (await room.exec(machine.id, "cat /workspace/file")).stdout == "kept\n"
        assert (await room.records.checkpoints.living())[1] == frozenset(), "what was begun is what was finished"
        assert await history(room, machine.id, "rolled_back") == []


async def test_a_disk_is_saved_though_its_base_is_gone(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node() as node:
            machine = await room.create()
            await room.exec(machine.id, "echo kept > /workspace/file; sync")
            await died(node, machine)
        async with room.node(bases=NoBases()):
            assert folders(room) == set()
        async with room.node():
            assert (await room.exec(machine.id, "cat /workspace/file")).stdout == "kept\n"


async def test_a_machine_whose_disk_is_kept_can_be_deleted(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        resident = await died(node, machine)
        with objects_away(room):
            with pytest.raises(UnavailableError):
                await node.adoption.lose(resident, "its sandbox ended")
            await room.keeper.do(machine.id, "delete")
            await look_for_strays(node)
        assert folders(room) == set()


async def test_a_disk_that_cannot_be_read_is_given_up_after_some_tries_and_the_machine_comes_back_without_it(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with open_machine_room(tmp_path) as room, room.node(clock=clock) as node:
        machine = await room.create()
        await room.exec(machine.id, "echo saved > /workspace/file")
        checkpoint = await room.keeper.checkpoint(machine.id)
        await room.exec(machine.id, "echo later > /workspace/file", effect_id="eff-later")
        resident = await died(node, machine)
        disk = os.open(resident.sandbox.path / "disk", os.O_RDONLY)
        fcntl.ioctl(disk, _EXT4_SHUTDOWN, _AT_ONCE)
        os.close(disk)
        with pytest.raises(UnavailableError):
            await node.adoption.lose(resident, "its sandbox ended")
        for _ in range(DISK_TRIES - 1):
            assert (await record_of(room, machine.id)).generation == machine.generation
            clock.ahead_s += 3_600.0
            await look_for_strays(node)
        await eventually(lambda: is_up_again(room, machine), within_s=30.0)
        assert (await room.exec(machine.id, "cat /workspace/file")).stdout == "saved\n"
        [lost] = await history(room, machine.id, "lost")
        assert "its files could not be saved" in lost.data["reason"]
        [rolled_back] = await history(room, machine.id, "rolled_back")
        assert (rolled_back.data["checkpoint"], rolled_back.data["effects"]) == (checkpoint, ["eff-later"])
        assert len((await room.records.checkpoints.living())[1]) == 1
