"""The guest where it belongs: PID 1 of a real sandbox, saved with all it holds and restored as another machine."""

import os
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from integration.machine.guest.test_terminals import until
from leaks import assert_nothing_left
from outlive.base import EffectId, new_effect_id, new_machine_id
from outlive.machine.backends.bases.provider import CachedBases
from outlive.machine.backends.gvisor import open_gvisor_sandboxes
from outlive.machine.command import Command
from outlive.machine.guest_link import Guest, GuestDoor, Welcome, open_door
from outlive.machine.sandbox import Sandbox, Sandboxes, SandboxPlan
from outlive.machine.spec import Limits
from outlive.wiring.settings import Settings

pytestmark = pytest.mark.anyio

COMES_S = 30.0
LIMITS = Limits(memory_mib=512, disk_mib=128, processes=64)
HOOK = '#!/bin/sh\necho "$1" >> /workspace/woken\n'


class Room:
    def __init__(self, sandboxes: Sandboxes, bases: CachedBases) -> None:
        self.sandboxes = sandboxes
        self._bases = bases

    async def prepare(self, generation: int) -> Sandbox:
        base, runtime = await self._bases.base("host", None), await self._bases.runtime()
        plan = SandboxPlan(
            new_machine_id(), generation, LIMITS, base.layers, runtime.path, runtime.argv, hostname="machine"
        )
        return await self.sandboxes.prepare(plan)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    cache = Settings().machines.cache
    cgroup = f"outlive-test/{os.getpid()}-guest"
    sandboxes = open_gvisor_sandboxes(tmp_path / "node", cgroup)
    yield Room(sandboxes, CachedBases(cache / "bases", cache / "runtimes"))
    for sandbox in await sandboxes.find_all():
        await sandboxes.destroy(sandbox)
    assert_nothing_left(tmp_path / "node", cgroup)


def welcome(sandbox: Sandbox, hostname: str = "m1") -> Welcome:
    return Welcome(sandbox.machine, sandbox.generation, hostname, os.urandom(16).hex())


async def say(guest: Guest, text: str, **rest: object) -> str:
    done = await guest.run(Command(new_effect_id(), text, **rest))  # type: ignore[arg-type]
    assert done.stderr == b""
    return done.stdout.decode()


async def test_what_a_guest_holds_is_saved_with_it_and_goes_on_elsewhere_as_another_machine(room: Room) -> None:
    first = await room.prepare(3)
    await room.sandboxes.start(first)
    running = EffectId("the-one-that-runs")
    async with open_door(first.host_path, welcome(first)) as door:
        guest = await door.guest(COMES_S)
        await fill(guest, running)
        before = await guest.terminals.list()
        told = await door.quiesce(COMES_S)
        assert told.unsavable == ()
        await room.sandboxes.pause(first)
        await room.sandboxes.save_memory(first)
        second = await room.prepare(1)
        shutil.copytree(first.image_path, second.image_path, dirs_exist_ok=True)
        shutil.copytree(first.upper_path, second.upper_path, dirs_exist_ok=True, symlinks=True)
        await room.sandboxes.resume(first)
        door.open()
        again = await door.guest(COMES_S)
        assert again.hello.boot == guest.hello.boot
        assert await say(again, "cat woken 2> /dev/null; true") == "", "the same generation: it was not asleep"
    async with open_door(first.host_path, replace(welcome(first), generation=4)) as door:
        await hook_was_told(await door.guest(COMES_S), "wake\n")
    await room.sandboxes.destroy(first)
    await room.sandboxes.restore(second)
    async with open_door(second.host_path, welcome(second, "m2")) as door:
        guest = await door.guest(COMES_S)
        assert (guest.hello.boot, guest.hello.machine) == (again.hello.boot, first.machine)
        assert [known.pid for known in await guest.terminals.list()] == [known.pid for known in before]
        await check_it_lives_on(guest, running)
        assert await say(guest, "cat /etc/hostname /etc/machine-id") == f"m2\n{second.machine.partition('_')[2]}\n"


async def fill(guest: Guest, running: EffectId) -> None:
    """A shell with a variable, a server, a command under way whose output nobody has read."""
    await guest.files.write("/etc/outlive/after_wake", HOOK.encode(), mode=0o755, parents=True, user="root")
    await guest.terminals.open("term_1", argv=("bash", "--norc"), env={"PS1": ""})
    async with guest.terminals.attach("term_1", offset=0, with_input=True) as attached:
        await attached.send(b"X=remem''bered; echo rea''dy\n")
        await until(attached, b"ready")
    await say(
        guest,
        "python3 -m http.server 8000 > /dev/null 2>&1 & until echo > /dev/tcp/127.0.0.1/8000; do :; done 2> /dev/null",
    )
    await say(guest, "mkfifo /tmp/gate")
    async with guest.start(Command(running, "echo before; read -r line < /tmp/gate; echo after $line; exit 4")):
        pass


async def hook_was_told(guest: Guest, why: str) -> None:
    with anyio.fail_after(COMES_S):
        while await say(guest, "cat woken 2> /dev/null; true") != why:
            pass


async def check_it_lives_on(guest: Guest, running: EffectId) -> None:
    async with guest.terminals.attach("term_1", offset=0, with_input=True) as attached:
        await until(attached, b"ready")
        await attached.send(b"echo $X\n")
        await until(attached, b"remembered")
    assert 8000 in await guest.ports()
    async with guest.connect(8000) as stream:
        await stream.send(b"HEAD / HTTP/1.0\r\n\r\n")
        assert (await stream.receive() or b"").startswith(b"HTTP/1.0 200")
    held = await guest.find(running)
    assert held is not None
    assert held.exit is None
    await hook_was_told(guest, "fork\n")
    await say(guest, "echo it > /tmp/gate")
    async with guest.attach(running) as attached_command:
        printed = b"".join([chunk.data async for chunk in attached_command.chunks()])
        assert (printed, (await attached_command.exit(5)).code) == (b"before\nafter it\n", 4)


async def test_pid_one_reaps_orphans_outlives_a_fork_bomb_and_nobody_becomes_root(room: Room) -> None:
    sandbox = await room.prepare(1)
    await room.sandboxes.start(sandbox)
    async with open_door(sandbox.host_path, welcome(sandbox)) as door:
        guest = await door.guest(COMES_S)
        assert await say(guest, "id -u; grep CapEff /proc/self/status") == ("1000\nCapEff:\t0000000000000000\n")
        assert (await guest.run(Command(new_effect_id(), "kill -9 1; echo > /proc/1/mem"))).exit.code != 0
        await say(guest, "for _ in 1 2 3 4 5; do (setsid sh -c 'sleep 0.01 & exit' &); done")
        async with guest.start(Command(new_effect_id(), "bomb() { bomb | bomb & }; bomb; sleep 1000")) as bomb:
            with anyio.fail_after(COMES_S):
                while len(await guest.processes()) < LIMITS.processes // 2:
                    pass
            assert len([known for known in await guest.processes() if known.state != "Z"]) <= LIMITS.processes
            await guest.ping()
            await guest.signal(bomb.effect, signal.SIGKILL)
            assert (await bomb.exit(COMES_S)).signal == signal.SIGKILL
        with anyio.fail_after(COMES_S):
            while any(process.pid != 1 for process in await guest.processes()):
                pass
        assert await say(guest, "echo well") == "well\n"
        await check_what_is_unsavable_is_found(guest, door)


async def check_what_is_unsavable_is_found(guest: Guest, door: GuestDoor) -> None:
    text = "exec 5> open 6> /tmp/open; rm open /tmp/open; mkdir d; cd d; rmdir ../d; echo ok; exec sleep 1000"
    async with guest.start(Command(new_effect_id(), text)) as running:
        async for _ in running.chunks():
            break
        told = await door.quiesce(COMES_S)
    assert {line.partition(": ")[2] for line in told.unsavable} == {"/workspace/open", "/workspace/d"}


async def test_what_is_in_front_of_a_terminal_is_known_signalled_and_told_of_sizes(room: Room) -> None:
    sandbox = await room.prepare(1)
    await room.sandboxes.start(sandbox)
    async with open_door(sandbox.host_path, welcome(sandbox)) as door:
        guest = await door.guest(COMES_S)
        pid = (await guest.terminals.open("term_1")).pid
        async with guest.terminals.attach("term_1", offset=0, with_input=True) as attached:
            await until(attached, b"133;B")
            assert (await guest.terminals.list())[0].foreground is None
            await attached.send(b"sleep 1000 &\n")
            await until(attached, b"133;B")
            await attached.send(b'sh -c \'trap "stty size" WINCH; echo rea""dy; while :; do sleep 0.1; done\'\n')
            await until(attached, b"ready\r\n")
            assert await _is_in_front(guest, "sh")
            await guest.terminals.resize("term_1", 100, 40)
            await until(attached, b"40 100\r\n")
            await guest.terminals.signal("term_1", signal.SIGKILL)
            assert b"133;D;137" in await until(attached, b"133;B")
            assert (await guest.terminals.list())[0].foreground is None
            await attached.send(b"jobs\n")
            await until(attached, b"Running")
        assert {process.pid for process in await guest.processes()} > {pid}
        await guest.terminals.close("term_1")
        await eventually(lambda: _is_alone(guest), COMES_S)


async def _is_in_front(guest: Guest, name: str) -> bool:
    foreground = (await guest.terminals.list())[0].foreground
    return foreground is not None and foreground.name == name


async def _is_alone(guest: Guest) -> bool:
    """Nothing is left of a terminal: neither its program nor what looked out for it."""
    return [process.pid for process in await guest.processes() if process.name != "sleep"] == [1]
