"""Memory that cannot be saved, cannot be restored or is damaged: the machine comes back as far as it can, and says how.
And the cost of a checkpoint is what has changed."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import CheckpointId, ConflictError, EffectId, MachineId
from outlive.machine.base import Base
from outlive.machine.checkpoint import CheckpointStore
from outlive.machine.node.parts import Bases
from outlive.machine.spec import Limits, MachineSpec
from outlive.machine.status import EffectState
from outlive.wiring.node import read_host_facts

pytestmark = pytest.mark.anyio

_SLEEPER = EffectId("eff-sleeper")


async def _events(room: MachineRoom, machine: MachineId) -> list[str]:
    return [event.kind for _, event in await room.records.machines.events(machine, after=0, limit=100)]


async def _run_until_ready(room: MachineRoom, machine: MachineId, program: str) -> None:
    """Start a Python program in the background, and wait until it has said that it is ready."""
    await room.exec(machine, f"exec python3 -c {shlex.quote(program)}", effect_id=_SLEEPER, background=True)
    await _wait_for_file(room, machine, "/workspace/ready")


async def _wait_for_file(room: MachineRoom, machine: MachineId, path: str) -> None:
    async def is_there() -> bool:
        return (await room.exec(machine, f"test -e {path}")).exit_code == 0

    await eventually(is_there, within_s=60)


async def _state_of_sleeper(room: MachineRoom, machine: MachineId) -> EffectState:
    found = await room.records.effects.find(machine, _SLEEPER)
    assert found is not None
    return found.state


async def _packs(room: MachineRoom, checkpoint: CheckpointId) -> list[Path]:
    """Files of the packs that this checkpoint put: memory comes first, names and facts of files last."""
    own = (await CheckpointStore(room.objects).read_manifest(checkpoint)).makers[0]
    return [room.path / "objects" / own.pack_key(pack.number) for pack in own.packs]


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


async def _hibernate(room: MachineRoom, machine: MachineId) -> CheckpointId:
    hibernated = await room.keeper.do(machine, "hibernate")
    assert hibernated.state == "hibernated", room.settler.failed
    assert hibernated.checkpoint is not None
    return hibernated.checkpoint


async def test_memory_that_cannot_be_saved_is_given_up_and_said(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        await _run_until_ready(
            room,
            machine.id,
            "import os, time; held = open('held', 'w'); os.unlink('held'); open('ready', 'w'); time.sleep(1000)",
        )
        saved = await room.records.checkpoints.get(await _hibernate(room, machine.id))
        assert not saved.has_memory
        await room.empty()
        after = await room.exec(machine.id, "ls /workspace")
        assert after.stdout == "ready\n"
        assert (await _events(room, machine.id))[-2:] == ["woken", "rebooted"]
        assert await _state_of_sleeper(room, machine.id) == "lost"


async def test_memory_of_another_runsc_is_not_tried(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node("a"):
            machine = await room.create()
            await _run_until_ready(room, machine.id, "import time; open('ready', 'w'); time.sleep(1000)")
            await room.exec(machine.id, "echo gone > /tmp/in-memory")
            assert (await room.records.checkpoints.get(await _hibernate(room, machine.id))).has_memory
        other = read_host_facts("runsc")._replace(runsc_version="another")
        async with room.node("b", host=other):
            after = await room.exec(machine.id, "ls /workspace /tmp")
            assert after.stdout == "/tmp:\n\n/workspace:\nready\n"
            assert (await _events(room, machine.id))[-2:] == ["woken", "rebooted"]
            assert await _state_of_sleeper(room, machine.id) == "lost"


async def test_damaged_memory_is_a_reboot_and_a_damaged_filesystem_leaves_the_machine_hibernated(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        await room.exec(machine.id, "echo kept > file; head -c 20000000 /dev/urandom > /dev/shm/filler")
        packs = await _packs(room, await _hibernate(room, machine.id))
        assert len(packs) > 2, "the first pack holds memory alone"
        _damage(packs[0])
        assert (await room.exec(machine.id, "cat file; ls /dev/shm")).stdout == "kept\n"
        assert (await _events(room, machine.id))[-3:] == ["failed", "woken", "rebooted"]

        packs = await _packs(room, await _hibernate(room, machine.id))
        whole = packs[-1].read_bytes()
        _damage(packs[-1])
        for _ in range(2):
            with pytest.raises(ConflictError, match="damaged"):
                await room.keeper.do(machine.id, "wake")
            found = await room.keeper.get(machine.id)
            assert (found.state, found.desired, found.node) == ("hibernated", "hibernated", None)
            assert node.residents.find(machine.id) is None
            await room.empty()

        packs[-1].write_bytes(whole)  # put back by whoever keeps the objects: nothing of the machine was lost
        assert (await room.exec(machine.id, "cat file")).stdout == "kept\n"


class UpgradedBases:
    """Bases of a host whose packages are upgraded at a moment of the test's choice."""

    def __init__(self, bases: Bases) -> None:
        self._bases = bases
        self.is_upgraded = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bases, name)

    async def base(self, reference: str, key: str | None) -> Base:
        found = await self._bases.base(reference, key)
        return found._replace(fingerprint="upgraded") if self.is_upgraded else found


async def test_memory_of_before_an_upgrade_of_the_host_is_not_restored_also_if_it_was_saved_after_it(
    tmp_path: Path,
) -> None:
    """It has the old files mapped, whatever the host has by the time that it is saved, and whoever asks then."""
    async with open_machine_room(tmp_path) as room:
        async with room.node() as node:
            bases = UpgradedBases(node.parts.bases)
        async with room.node(bases=bases):
            machine = await room.create()
            await room.exec(machine.id, "echo memory > /tmp/kept; echo file > kept")
        bases.is_upgraded = True
        async with room.node(bases=bases):
            saved = await room.records.checkpoints.get(await _hibernate(room, machine.id))
            assert saved.has_memory
            assert (await room.exec(machine.id, "cat kept; ls /tmp")).stdout == "file\n"
            assert "rebooted" in await _events(room, machine.id)
            await room.exec(machine.id, "echo memory > /tmp/kept")
            await _hibernate(room, machine.id)  # what came up after the upgrade stands on what is there
            assert (await room.exec(machine.id, "cat /tmp/kept")).stdout == "memory\n"


async def test_memory_of_a_sandbox_that_an_older_version_has_started_is_not_restored_and_the_machine_boots(
    tmp_path: Path,
) -> None:
    """Nobody has written down what it stands on."""
    async with open_machine_room(tmp_path) as room:
        async with room.node():
            machine = await room.create()
            await room.exec(machine.id, "echo memory > /tmp/kept; echo file > kept")
        [file] = (room.path / "a" / "machines").glob("*/*/sandbox.json")
        older = json.loads(file.read_text())
        del older["footing"]
        file.write_text(json.dumps(older))
        async with room.node():
            await _hibernate(room, machine.id)
            assert (await room.exec(machine.id, "cat kept; ls /tmp")).stdout == "file\n"
            assert "rebooted" in await _events(room, machine.id)


async def test_a_damaged_parent_spoils_no_checkpoint_and_no_hibernation(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        await room.exec(machine.id, "echo kept > file; head -c 20000000 /dev/urandom > big; cksum big > sum")
        await room.exec(machine.id, "echo memory > /tmp/in-memory")
        first = await room.keeper.checkpoint(machine.id)
        manifest = await CheckpointStore(room.objects).read_manifest(first)
        _damage(room.path / "objects" / manifest.makers[0].index_key)  # found when the next one is begun

        second = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
        assert (second.parent, second.has_memory) == (None, True)
        assert second.new_bytes > 20_000_000
        (await _packs(room, second.id))[0].unlink()  # found when the next one is verified
        third = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
        assert third.parent is None
        (await _packs(room, third.id))[0].unlink()
        fourth = await room.records.checkpoints.get(await _hibernate(room, machine.id))
        assert (fourth.parent, fourth.has_memory) == (None, True)

        after = await room.exec(machine.id, "cat file /tmp/in-memory; cksum big | cmp - sum && echo same")
        assert after.stdout == "kept\nmemory\nsame\n"
        assert "rebooted" not in await _events(room, machine.id)


_TOUCH_ONE_IN_A_HUNDRED = """
import os, time
page, pages = 4096, 76_800  # 300 MB
memory = bytearray().join(os.urandom(page * 1024) for _ in range(pages // 1024))
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.02)
open("ready", "w")
wait_for("go")
for number in range(0, pages, 100):
    memory[number * page : number * page + 8] = os.urandom(8)
open("touched", "w")
time.sleep(1000)
"""


async def test_a_checkpoint_after_one_page_in_a_hundred_was_touched_adds_less_than_a_twentieth(tmp_path: Path) -> None:
    spec = MachineSpec(base="host", limits=Limits(memory_mib=1024, disk_mib=64))
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create(spec)
        await _run_until_ready(room, machine.id, _TOUCH_ONE_IN_A_HUNDRED)
        first = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
        await room.exec(machine.id, "touch go")
        await _wait_for_file(room, machine.id, "/workspace/touched")
        second = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
        assert first.has_memory
        assert second.has_memory
        assert first.new_bytes > 300_000_000
        assert second.new_bytes < first.new_bytes * 0.05
