"""Commands that are asked for while their machine is put to sleep: none is lost, none runs twice, nobody is refused."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from eventually import eventually
from integration.machine.node.watching import BOT, open_terminal
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import EffectId, MachineId, OutliveError, SystemClock, UnavailableError
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.machine.caller import MachineCaller
from outlive.machine.door import ExecRequest, FileEntry, digest_of
from outlive.machine.keeper import hibernated_meanwhile
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.node import Node
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.sandbox import Sandbox, Sandboxes
from outlive.machine.status import Effect, Machine
from outlive.machine.terminal.door import RunInTerminal
from outlive.machine.terminal.shell import digest_of_run

pytestmark = pytest.mark.anyio

_SLEEPS = 4  # of the hammered machine
_HAMMERS = 4


class HeldSandboxes:
    """Sandboxes whose memory is saved only when somebody lets it: a machine is held while it is put to sleep."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self.is_saving = anyio.Event()
        self.may_save = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandboxes, name)

    async def save_memory(self, sandbox: Sandbox) -> None:
        self.is_saving.set()
        await self.may_save.wait()
        await self._sandboxes.save_memory(sandbox)


class Knocking(NodeDoor):
    """Says when somebody has asked."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.knocks = 0

    async def exec(self, machine: MachineId, generation: int, request: ExecRequest) -> Effect:
        self.knocks += 1
        return await super().exec(machine, generation, request)


def _appending(effect: str, **fields: Any) -> ExecRequest:
    return ExecRequest(effect_id=EffectId(effect), command=f"echo {effect} >> ran", **fields)


def _caller(room: MachineRoom, node: Node) -> MachineCaller:
    return MachineCaller(room.keeper, room.records.effects, NodeDoor(node), SystemClock())


async def _ran(room: MachineRoom, machine: Machine) -> list[str]:
    return (await room.exec(machine.id, "cat ran")).stdout.split()


async def _begin(room: MachineRoom, machine: Machine, effect: EffectId, digest: str) -> None:
    """The journal's line alone: its node died, or stood still, before it told the guest."""
    assert machine.node is not None
    begun = await room.records.effects.begin(
        machine.id,
        effect,
        node=machine.node,
        generation=machine.generation,
        digest=digest,
        at=SystemClock().now(),
    )
    assert begun.is_new


@asynccontextmanager
async def _falling_asleep(room: MachineRoom, machine: Machine, held: HeldSandboxes) -> AsyncIterator[None]:
    """Inside, the machine is being saved for its hibernation; afterwards it is hibernated."""
    async with anyio.create_task_group() as group:
        group.start_soon(_sleep, room, machine.id)
        with anyio.fail_after(60):
            await held.is_saving.wait()
        yield
        held.may_save.set()


async def _sleep(room: MachineRoom, machine: MachineId) -> None:
    with suppress(OutliveError):  # somebody may want it awake before it is asleep
        await room.keeper.do(machine, "hibernate")


@asynccontextmanager
async def _held_room(path: Path) -> AsyncIterator[tuple[MachineRoom, Node, HeldSandboxes]]:
    async with open_machine_room(path) as room:
        (path / "a").mkdir()
        held = HeldSandboxes(open_gvisor_sandboxes(path / "a", room.cgroup("a")))
        async with room.node(sandboxes=held) as node:
            yield room, node, held


async def test_a_command_that_comes_while_its_machine_is_put_to_sleep_runs_once_when_it_is_awake(
    tmp_path: Path,
) -> None:
    async with _held_room(tmp_path) as (room, node, held):
        machine = await room.create()
        door = Knocking(node)
        caller = MachineCaller(room.keeper, room.records.effects, door, SystemClock())
        done: list[Effect] = []

        async def ask(request: ExecRequest) -> None:
            done.append(await caller.exec(machine.id, request))

        requests = [_appending("eff-one"), _appending("eff-one"), _appending("eff-behind", background=True)]
        async with anyio.create_task_group() as group, _falling_asleep(room, machine, held):
            for request in requests:
                group.start_soon(ask, request)
            await eventually(lambda: door.knocks >= len(requests), within_s=60)
            await anyio.wait_all_tasks_blocked()
            assert await room.records.effects.mark(machine.id) == 0, "nothing is begun in a machine that goes"
        assert {effect.id for effect in done} == {"eff-one", "eff-behind"}
        assert all(effect.state == "finished" for effect in done if effect.id == "eff-one")

        async def have_run() -> bool:
            return len(await _ran(room, machine)) >= 2

        await eventually(have_run, within_s=60)  # one was only started: it is in the background
        assert sorted(await _ran(room, machine)) == ["eff-behind", "eff-one"]
        assert (await room.keeper.get(machine.id)).generation == 2, "all of them woke it once"


class Asleep(Knocking):
    """A door at which a machine is asleep, whatever its record says."""

    async def exec(self, machine: MachineId, generation: int, request: ExecRequest) -> Effect:
        self.knocks += 1
        raise hibernated_meanwhile(machine)

    async def stat_file(self, machine: MachineId, generation: int, path: str) -> FileEntry:
        self.knocks += 1
        raise hibernated_meanwhile(machine)


async def test_a_machine_that_is_said_to_be_asleep_whenever_it_was_woken_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlive.machine.caller.ASLEEP_WITHIN_S", 1.0, raising=False)
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        door = Asleep(node)
        caller = MachineCaller(room.keeper, room.records.effects, door, SystemClock())
        for ask in (
            lambda: caller.exec(machine.id, _appending("eff-asleep")),
            lambda: caller.use(machine.id, lambda generation: door.stat_file(machine.id, generation, "/")),
        ):
            door.knocks = 0
            with anyio.fail_after(20), pytest.raises(UnavailableError) as raised:
                await ask()
            assert raised.value.code == "machine.hibernated"
            assert 3 < door.knocks < 20


async def test_commands_that_were_begun_and_never_came_to_their_machine_are_started_after_the_wake(
    tmp_path: Path,
) -> None:
    async with _held_room(tmp_path) as (room, node, held):
        machine = await room.create()
        terminal = await open_terminal(node, machine, argv=None)
        typed = RunInTerminal(effect_id=EffectId("eff-typed"), command="echo eff-typed >> ran", operator=BOT)
        before, meanwhile = _appending("eff-before"), _appending("eff-meanwhile")
        await _begin(room, machine, before.effect_id, digest_of(before))
        async with _falling_asleep(room, machine, held):
            await _begin(room, machine, meanwhile.effect_id, digest_of(meanwhile))
            await _begin(room, machine, typed.effect_id, digest_of_run(terminal, typed.command))
        woken = await room.keeper.ensure_awake(machine.id)
        assert woken.generation == 2
        assert await _count(room, machine, lambda kind: kind == "rolled_back") == 0
        for _ in range(2):
            done = [await _caller(room, node).exec(machine.id, request) for request in (before, meanwhile)]
            done.append(await NodeTerminalDoor(node).run(machine.id, woken.generation, terminal, typed))
            assert [(each.state, each.exit_code) for each in done] == [("finished", 0)] * 3
        assert await _ran(room, machine) == ["eff-before", "eff-meanwhile", "eff-typed"]


async def test_what_a_machine_that_came_back_from_an_older_checkpoint_does_not_hold_is_lost(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        goes_on = ExecRequest(
            effect_id=EffectId("eff-on"), command="while [ ! -e go ]; do sleep 0.05; done; echo on >> ran"
        )
        unknown = _appending("eff-unknown")
        async with room.node("a") as node:
            machine = await room.create()
            await _caller(room, node).exec(machine.id, goes_on.model_copy(update={"background": True}))
            await _begin(room, machine, unknown.effect_id, digest_of(unknown))
            await room.keeper.checkpoint(machine.id)
            # After the checkpoint it was started: nobody who has the checkpoint alone can know.
            await _caller(room, node).exec(machine.id, unknown.model_copy(update={"background": True}))
        async with room.node("b") as node:
            await room.settler.settle(machine.id)  # the other node is gone for good
            caller = _caller(room, node)
            await room.exec(machine.id, "touch go")
            assert (await caller.exec(machine.id, goes_on)).state == "finished"
            assert (await caller.exec(machine.id, unknown)).state == "lost"
            assert await _ran(room, machine) == ["on"]


async def test_a_wake_that_comes_when_it_is_not_wanted_any_more_is_no_failure(tmp_path: Path) -> None:
    """Else it would be given up, and whoever wants the machine by then would be told that it is to sleep."""
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        await room.keeper.do(machine.id, "hibernate")
        await node.wake(machine.id)
        found = await room.keeper.get(machine.id)
        assert (found.state, found.desired, found.reason) == ("hibernated", "hibernated", None)
        assert node.residents.find(machine.id) is None
        assert (await room.exec(machine.id, "echo up")).stdout == "up\n"


async def test_commands_and_hibernations_at_once_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        caller = _caller(room, node)
        done: list[Effect] = []
        is_enough = anyio.Event()

        async def hammer(name: int) -> None:
            number = 0
            while not is_enough.is_set():
                request = _appending(f"eff-{name}-{number}")
                async with anyio.create_task_group() as group:
                    for _ in range(1 + number % 2):  # every other one is asked for twice
                        group.start_soon(ask, request)
                number += 1

        async def ask(request: ExecRequest) -> None:
            done.append(await caller.exec(machine.id, request))

        async with anyio.create_task_group() as group:
            for name in range(_HAMMERS):
                group.start_soon(hammer, name)
            while await _count(room, machine, lambda kind: kind == "hibernated") < _SLEEPS:
                await _sleep(room, machine.id)
            is_enough.set()
        assert {effect.state for effect in done} == {"finished"}
        ran = await _ran(room, machine)
        assert sorted(ran) == sorted({effect.id for effect in done})
        assert await _count(room, machine, lambda kind: kind in ("rolled_back", "rebooted", "lost", "failed")) == 0


async def _count(room: MachineRoom, machine: Machine, is_counted: Callable[[str], bool]) -> int:
    events = await room.records.machines.events(machine.id, after=0, limit=10_000)
    return sum(is_counted(event.kind) for _, event in events)
