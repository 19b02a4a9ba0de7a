"""Hostile machines, through a whole node: what runs in one harms itself at worst. Beside every attack a neighbour on
the same host keeps answering, and in the end nothing is left of either."""

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from integration.machine.node.watching import BOT, open_terminal
from leaks import nothing_is_left
from machine_rooms import SMALL, MachineRoom, open_machine_room
from outlive.base import DeadlineError, MachineId, OutliveError, UnavailableError, new_effect_id, new_machine_id
from outlive.machine.backends.bases.provider import CachedBases
from outlive.machine.base import Base, Runtime
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.node import Node
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.node.watch import watch_residents
from outlive.machine.spec import Limits, MachineSpec
from outlive.machine.status import Effect
from outlive.machine.terminal.door import RunInTerminal
from outlive.wiring.settings import Settings
from security import liar

pytestmark = pytest.mark.anyio

_ANSWERS_WITHIN_S = 60.0  # of a host whose two CPUs others use too
_BOOT_AT_ONCE = 4  # of the liars: those that greet have to do so in time


def _limited(**limits: int) -> MachineSpec:
    return SMALL.model_copy(update={"limits": Limits(memory_mib=512, disk_mib=128, cpus=1).model_copy(update=limits)})


def _python(program: str) -> str:
    return f"exec python3 -c {shlex.quote(program)}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that waits for silent guests as long as it would in a minute or two, in some seconds."""
    for name, value in (
        ("runs._PING_EVERY_S", 1.0),
        ("runs._PING_WITHIN_S", 5.0),
        ("runs._AWAY_WITHIN_S", 5.0),
        ("resident._GUEST_WITHIN_S", 5.0),
        ("node._GUEST_WITHIN_S", 15.0),
    ):
        monkeypatch.setattr(f"outlive.machine.node.{name}", value)


@asynccontextmanager
async def _neighbourhood(path: Path) -> AsyncIterator[tuple[MachineRoom, Node]]:
    """A watched node with a neighbour that is asked again and again, and has to answer in time each time."""
    async with open_machine_room(path) as room, room.node() as node, anyio.create_task_group() as group:
        neighbour = await room.create()
        answered = 0

        async def ask() -> None:
            nonlocal answered
            while True:
                with anyio.fail_after(_ANSWERS_WITHIN_S):
                    done = await room.exec(neighbour.id, "sleep 0.2; echo well")
                assert done.stdout == "well\n"
                answered += 1

        group.start_soon(watch_residents, node)
        group.start_soon(ask)
        yield room, node
        seen = answered
        await eventually(lambda: answered > seen, within_s=_ANSWERS_WITHIN_S)
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await room.keeper.do(neighbour.id, "delete")
            await nothing_is_left(path / "a", room.cgroup("a"))


async def _events(room: MachineRoom, machine: MachineId) -> list[str]:
    return [event.kind for _, event in await room.records.machines.events(machine, after=0, limit=100)]


async def _exec_when_back(room: MachineRoom, machine: MachineId, command: str) -> Effect:
    """For a machine that died a moment ago and is on its way back."""
    found: list[Effect] = []

    async def is_back() -> bool:
        try:
            found.append(await room.exec(machine, command))
        except OutliveError:
            return False
        return True

    await eventually(is_back, within_s=60)
    return found[0]


_CHILDREN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
made, is_apart = 0, sys.argv[1:] == ["apart"]
while True:  # whoever ends makes room for one more
    try:
        if os.fork() == 0:
            if is_apart:
                os.setsid()
            time.sleep(1000)
        made += 1
    except OSError:
        print(made, flush=True)
        time.sleep(0.01 if is_apart else 1000)
"""


async def test_a_full_table_of_processes_is_the_machines_own_and_it_can_still_be_saved_and_ended(
    tmp_path: Path,
) -> None:
    async with _neighbourhood(tmp_path) as (room, node):
        machine = await room.create(_limited(processes=64, threads=2_000))
        bomb = await room.exec(machine.id, _python(_CHILDREN), timeout_s=15)
        assert bomb.state == "timeout"
        assert 40 < int(bomb.stdout) <= 64

        async def are_ended() -> bool:
            return int((await room.exec(machine.id, "ls /proc | grep -c '^[0-9]'")).stdout) < 10

        await eventually(are_ended, within_s=30)  # all of them, whatever they ignored

        await room.exec(machine.id, _python(_CHILDREN) + " apart", background=True)

        async def is_full() -> bool:
            tried = await room.exec(machine.id, "true")
            return tried.exit_code == 126 and "did not start" in tried.stderr

        await eventually(is_full, within_s=60)
        door = NodeDoor(node)
        assert len(await door.processes(machine.id, machine.generation)) > 40
        assert (await door.stat_file(machine.id, machine.generation, "/etc/passwd")).kind == "file"
        saved = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
        assert saved.has_memory
        await room.keeper.do(machine.id, "delete")


_BOMB = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[1:] == ["deaf"] else signal.SIG_DFL)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
first = os.getpid()
while True:  # at any moment somebody is being born
    try:
        if os.fork() and os.getpid() != first:
            os._exit(0)
    except OSError:
        pass
"""


async def test_a_fork_bomb_that_is_typed_into_a_terminal_is_over_with_its_timeout(tmp_path: Path) -> None:
    async with _neighbourhood(tmp_path) as (room, node):
        machine = await room.create(_limited(processes=64, threads=2_000))
        terminal = await open_terminal(node, machine, argv=None)

        async def run(command: str, timeout_s: float = 60) -> Effect:
            request = RunInTerminal(effect_id=new_effect_id(), command=command, operator=BOT, timeout_s=timeout_s)
            return await NodeTerminalDoor(node).run(machine.id, machine.generation, terminal, request)

        async def living() -> set[int]:
            return {each.pid for each in await NodeDoor(node).processes(machine.id, machine.generation)}

        async def is_as(before: set[int]) -> bool:
            return await living() == before

        assert (await run("true")).exit_code == 0
        before = await living()
        for bomb in (_python(_BOMB), _python(_BOMB) + " deaf"):
            done = await run(f"({bomb})", timeout_s=4)
            assert done.state == "timeout"
            assert done.exit_code in (130, 137, None), "None: the shell was too busy to say so in time"
            await eventually(lambda: is_as(before), within_s=30)
        assert (await run("echo well")).stdout == "well\n"
        await room.keeper.do(machine.id, "delete")


_TAKE_ALL_MEMORY = """
import os
for _ in range(6):
    os.fork()
taken = []
while True:
    try:
        taken.append(bytearray(b"x") * (1 << 20))
    except MemoryError:
        pass
"""


async def test_a_machine_that_takes_all_its_memory_or_kills_its_guest_dies_says_so_and_comes_back(
    tmp_path: Path,
) -> None:
    async with _neighbourhood(tmp_path) as (room, _):
        machine = await room.create(_limited(memory_mib=256))
        await room.exec(machine.id, "echo kept > file")
        with anyio.fail_after(120):
            done = await room.exec(machine.id, _python(_TAKE_ALL_MEMORY))
        assert done.state == "lost"
        assert (await _exec_when_back(room, machine.id, "cat file")).stdout == "kept\n"
        assert (await _events(room, machine.id))[-4:] == ["checkpointed", "lost", "woken", "rebooted"]

        with anyio.fail_after(60):
            done = await room.exec(machine.id, "kill -KILL 1; sleep 1000", user="root")
        assert done.state == "lost"
        assert (await _exec_when_back(room, machine.id, "cat file")).stdout == "kept\n"
        assert (await _events(room, machine.id))[-4:] == ["checkpointed", "lost", "woken", "rebooted"]
        await room.keeper.do(machine.id, "delete")


_FILL = """
mkdir many; for number in $(seq 500); do echo $number > many/$number; done
cat /dev/urandom > filler; cat /dev/zero > more; mkdir folder
"""


async def test_a_full_disk_is_saved_restored_and_can_be_emptied(tmp_path: Path) -> None:
    async with _neighbourhood(tmp_path) as (room, _):
        machine = await room.create(_limited(disk_mib=48))
        done = await room.exec(machine.id, _FILL)
        assert done.stderr.count("No space left on device") >= 2
        total = (await room.exec(machine.id, "cat filler many/* | cksum")).stdout
        saved = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
        assert saved.has_memory
        await room.keeper.do(machine.id, "hibernate")
        assert (await room.exec(machine.id, "cat filler many/* | cksum")).stdout == total
        assert "rebooted" not in await _events(room, machine.id)
        done = await room.exec(machine.id, "rm -r filler more many; echo new > file; cat file")
        assert (done.stdout, done.stderr) == ("new\n", "")
        await room.keeper.do(machine.id, "delete")


def _highest_memory() -> int:
    """Of this process, which is the node's, since `_forget_highest_memory`; in bytes."""
    [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _forget_highest_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5")


async def test_output_without_end_is_cut_and_does_not_fill_the_node(tmp_path: Path) -> None:
    async with _neighbourhood(tmp_path) as (room, _):
        machine = await room.create(_limited(output_mib=8))
        _forget_highest_memory()
        before = _highest_memory()
        flood = "head -c 300000000 /dev/zero & head -c 300000000 /dev/zero >&2; wait"
        done = await room.exec(machine.id, flood, timeout_s=60)
        assert (done.state, done.truncated) == ("finished", True)
        assert done.cut_bytes >= 600_000_000 - 2 * (8 << 20)
        assert _highest_memory() - before < 64 << 20
        spool = tmp_path / "a" / "spool"
        assert [path for path in spool.rglob("*") if path.is_file()] == []
        await room.keeper.do(machine.id, "delete")


_DIAL = """
import socket
refused = 0
for number in range(300):
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(10)
    try:
        one.connect("/run/outlive/ctl.sock")
        one.sendall(b"\\xff" * 1000)
        refused += one.recv(1) == b""
    except OSError:
        refused += 1
    one.close()
print(refused)
held = []
try:
    for number in range(2000):
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(1)
        one.connect("/run/outlive/egress.sock")
        held.append(one)
        one.sendall(b"GET http://x/ HTTP/1.1\\r\\nX: ")
except OSError:
    pass
"""


async def test_root_in_a_machine_cannot_take_the_place_of_a_living_guest_and_gains_nothing_by_stopping_it(
    tmp_path: Path, impatient: None
) -> None:
    async with _neighbourhood(tmp_path) as (room, _):
        machine = await room.create()
        done = await room.exec(machine.id, _python(_DIAL), user="root", timeout_s=60)
        assert (done.state, done.stdout) == ("finished", "300\n"), done.stderr
        await room.exec(machine.id, "echo kept > file")

        with anyio.fail_after(60), pytest.raises(UnavailableError, match="guest"):
            await room.exec(machine.id, "kill -STOP 1; sleep 1000", user="root")
        with anyio.fail_after(60):
            await room.keeper.do(machine.id, "hibernate")
        assert (await room.exec(machine.id, "cat file")).stdout == "kept\n"
        assert (await _events(room, machine.id))[-2:] == ["woken", "rebooted"]
        await room.keeper.do(machine.id, "delete")


class _LyingRuntime:
    """The bases of a node, with a liar in the place of the guest."""

    def __init__(self) -> None:
        cache = Settings().machines.cache
        self._sound = CachedBases(cache / "bases", cache / "runtimes")
        self._liar = Path(liar.__file__).read_text()

    async def base(self, reference: str, key: str | None) -> Base:
        return await self._sound.base(reference, key)

    async def runtime(self, key: str | None = None) -> Runtime:
        found = await self._sound.runtime(key)
        return found._replace(argv=(*found.argv[:-1], "-c", self._liar))


def _liar_id(number: int) -> MachineId:
    return MachineId(f"{new_machine_id()[:-2]}{number:02x}")


async def _meet_liar_before_hello(room: MachineRoom, number: int, boots: anyio.CapacityLimiter) -> None:
    async with boots:
        with pytest.raises(OutliveError, match="guest"):
            await room.create(machine=_liar_id(number))


async def _meet_liar_after_hello(room: MachineRoom, number: int, boots: anyio.CapacityLimiter) -> None:
    async with boots:
        machine = await room.create(machine=_liar_id(number))
    for _ in range(2):
        with anyio.fail_after(_ANSWERS_WITHIN_S), pytest.raises((UnavailableError, DeadlineError), match="guest"):
            await room.exec(machine.id, "true")
    await room.keeper.do(machine.id, "delete")


async def test_guests_that_lie_flood_stall_and_never_greet_harm_themselves_alone(
    tmp_path: Path, impatient: None
) -> None:
    async with _neighbourhood(tmp_path) as (room, node):
        _forget_highest_memory()
        before = _highest_memory()
        async with room.node("liars", bases=_LyingRuntime()):
            nodes = room.settler.nodes
            nodes[node.parts.node] = nodes.pop(node.parts.node)  # new machines go to the first one, the liars'
            boots = anyio.CapacityLimiter(_BOOT_AT_ONCE)
            async with anyio.create_task_group() as group:
                for number in range(len(liar.BEFORE_HELLO)):
                    group.start_soon(_meet_liar_before_hello, room, number, boots)
                for number in range(len(liar.BEFORE_HELLO), len(liar.BEFORE_HELLO) + len(liar.AFTER_HELLO)):
                    group.start_soon(_meet_liar_after_hello, room, number, boots)
            await nothing_is_left(tmp_path / "liars", room.cgroup("liars"))
        assert _highest_memory() - before < 64 << 20


async def test_a_list_that_a_machine_never_ends_is_given_up_and_it_can_be_put_to_sleep(
    tmp_path: Path, impatient: None
) -> None:
    async with open_machine_room(tmp_path) as room, room.node(bases=_LyingRuntime()) as node:
        machine = await room.create(machine=_liar_id(len(liar.BEFORE_HELLO) + len(liar.AFTER_HELLO)))
        door, at = NodeDoor(node), (machine.id, machine.generation)
        for asked in (lambda: door.list_files(*at, "/"), lambda: door.processes(*at)):
            with anyio.fail_after(40), pytest.raises(UnavailableError, match="list") as refused:
                await asked()
            assert refused.value.code == "machine.guest_away"
        with anyio.fail_after(40):
            await room.keeper.do(machine.id, "hibernate")
        await room.keeper.do(machine.id, "delete")
