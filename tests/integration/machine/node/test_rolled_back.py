"""A machine that came up from an older checkpoint says what it does not hold any more, and carries nothing on of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually
from integration.machine.node.watching import BOT, open_terminal
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import CheckpointId, EffectId
from outlive.machine.command import HeldEffect
from outlive.machine.door import ExecRequest
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.idle import IdlePolicy
from outlive.machine.node.node import Node
from outlive.machine.node.parts import HostFacts
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.node.watch import watch_residents
from outlive.machine.records import CheckpointRecords, Effects
from outlive.machine.status import Checkpoint, Effect, Machine
from outlive.machine.terminal.door import RunInTerminal
from outlive.wiring.node import read_host_facts

pytestmark = pytest.mark.anyio

_WAITS = "while [ ! -e go ]; do sleep 0.05; done; echo built > built"
_SERVES = ExecRequest(effect_id=EffectId("eff-server"), command="while :; do sleep 1; done", background=True)


def _waiting(effect: str, **fields: Any) -> ExecRequest:
    return ExecRequest(effect_id=EffectId(effect), command=_WAITS, **fields)


async def _ask(node: Node, machine: Machine, request: ExecRequest) -> Effect:
    return await NodeDoor(node).exec(machine.id, machine.generation, request)


async def _ledger(node: Node, machine: Machine) -> list[HeldEffect]:
    async with node.residents.get(machine.id, machine.generation).use() as guest:
        return await guest.effects()


async def _lines(node: Node, machine: Machine) -> list[str]:
    """What runs in it."""
    async with node.residents.get(machine.id, machine.generation).use() as guest:
        return [each.argv for each in await guest.processes()]


async def _come_up(room: MachineRoom, machine: Machine) -> tuple[Machine, list[str]]:
    """On another node: (its record, what it says that it does not hold)."""
    await room.settler.settle(machine.id)
    events = [event for _, event in await room.records.machines.events(machine.id, after=0, limit=100)]
    gone = [each for event in events if event.kind == "rolled_back" for each in event.data["effects"]]
    return await room.keeper.get(machine.id), gone


@asynccontextmanager
async def _watched(node: Node) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(watch_residents, node)
        yield
        group.cancel_scope.cancel()


async def test_what_ended_after_the_checkpoint_that_it_ran_across_is_rolled_back_and_does_not_run_on(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room:
        build = _waiting("eff-build")
        async with room.node("a") as node:
            machine = await room.create()
            await _ask(node, machine, build.model_copy(update={"background": True}))
            await _ask(node, machine, _SERVES)
            await room.keeper.checkpoint(machine.id)
            await room.exec(machine.id, "touch go", effect_id="eff-go")
            told = await _ask(node, machine, build)
            assert (told.state, told.exit_code) == ("finished", 0)
        async with room.node("b", idle=IdlePolicy(0.5, None)) as node:
            moved, gone = await _come_up(room, machine)
            assert gone == ["eff-build", "eff-go"]
            assert await _ask(node, moved, build) == told, "what was told stays"
            assert [(held.effect, held.exit) for held in await _ledger(node, moved)] == [(_SERVES.effect_id, None)]
            assert not [line for line in await _lines(node, moved) if "[ ! -e go ]" in line]
            assert [line for line in await _lines(node, moved) if "sleep 1; done" in line], "what was not told goes on"
            await NodeDoor(node).signal(moved.id, moved.generation, _SERVES.effect_id, 15)
            sandbox = node.residents.get(moved.id, moved.generation).sandbox

            async def is_frozen() -> bool:
                return await node.parts.sandboxes.state(sandbox) == "frozen"

            async with _watched(node):
                await eventually(is_frozen, within_s=20)


class Older:
    """Records of checkpoints as an older version has written them."""

    def __init__(self, checkpoints: CheckpointRecords) -> None:
        self._checkpoints = checkpoints

    def __getattr__(self, name: str) -> Any:
        return getattr(self._checkpoints, name)

    async def get(self, checkpoint: CheckpointId) -> Checkpoint:
        return (await self._checkpoints.get(checkpoint)).model_copy(update={"effects_under_way": None})


async def test_a_checkpoint_of_an_older_version_tells_by_its_moment_what_ran_across_it(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        build = _waiting("eff-build")
        async with room.node("a") as node:
            machine = await room.create()
            await room.exec(machine.id, "echo before")
            await _ask(node, machine, build.model_copy(update={"background": True}))
            await _ask(node, machine, _SERVES)
            await room.keeper.checkpoint(machine.id)
            await room.exec(machine.id, "touch go", effect_id="eff-go")
            assert (await _ask(node, machine, build)).state == "finished"
        async with room.node("b", checkpoints=Older(room.records.checkpoints)) as node:
            moved, gone = await _come_up(room, machine)
            assert gone == ["eff-build", "eff-go"]
            assert [(held.effect, held.exit) for held in await _ledger(node, moved)] == [(_SERVES.effect_id, None)]


async def test_what_was_typed_into_a_terminal_and_ended_after_the_checkpoint_is_rolled_back(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        typed = RunInTerminal(effect_id=EffectId("eff-typed"), command=_WAITS, operator=BOT)
        async with room.node("a") as node:
            machine = await room.create()
            terminal = await open_terminal(node, machine, argv=None)
            done: list[Effect] = []

            async def run() -> None:
                done.append(await NodeTerminalDoor(node).run(machine.id, machine.generation, terminal, typed))

            async def runs() -> bool:
                return any("sleep 0.05" in line for line in await _lines(node, machine))

            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await eventually(runs, within_s=20)
                await room.keeper.checkpoint(machine.id)
                await room.exec(machine.id, "touch go", effect_id="eff-go")
            assert [(each.state, each.exit_code) for each in done] == [("finished", 0)]
        async with room.node("b"):
            _, gone = await _come_up(room, machine)
            assert gone == ["eff-typed", "eff-go"]
            assert await room.records.effects.find(machine.id, typed.effect_id) == done[0]


async def test_where_memory_is_not_restored_what_ran_across_the_checkpoint_is_rolled_back_too(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        build = _waiting("eff-build")
        async with room.node("a") as node:
            machine = await room.create()
            await _ask(node, machine, build.model_copy(update={"background": True}))
            await _ask(node, machine, _SERVES)
            await room.keeper.checkpoint(machine.id)
            await room.exec(machine.id, "touch go", effect_id="eff-go")
            assert (await _ask(node, machine, build)).state == "finished"
        other = HostFacts(read_host_facts("runsc").runsc_version, "another", ())
        async with room.node("b", host=other) as node:
            moved, gone = await _come_up(room, machine)
            assert gone == ["eff-build", "eff-go"], "what is lost is said by its own outcome"
            assert (await _ask(node, moved, _SERVES)).state == "lost"
            assert (await room.exec(machine.id, "test -e built || echo none")).stdout == "none\n"


class Held:
    """A journal that writes no result before it is let: what has ended in a machine is not yet known to be over."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.is_ending = anyio.Event()
        self.may_write = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._effects, name)

    async def finish(self, effect: Effect, **fields: Any) -> Effect:
        self.is_ending.set()
        await self.may_write.wait()
        return await self._effects.finish(effect, **fields)


async def test_what_had_ended_in_the_checkpoint_and_was_told_after_it_is_held(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        build = ExecRequest(effect_id=EffectId("eff-build"), command="echo built > built")
        held = Held(room.records.effects)
        async with room.node("a", effects=held) as node:
            machine = await room.create()
            await _ask(node, machine, build.model_copy(update={"background": True}))
            with anyio.fail_after(20):
                await held.is_ending.wait()
            await room.keeper.checkpoint(machine.id)
            held.may_write.set()
            assert (await _ask(node, machine, build)).state == "finished"
        async with room.node("b") as node:
            moved, gone = await _come_up(room, machine)
            assert gone == []
            assert await _ledger(node, moved) == [], "its guest need not remember it"
            assert (await room.exec(machine.id, "cat built")).stdout == "built\n"


async def test_a_hibernated_machine_holds_all_that_was_done_in_it(tmp_path: Path) -> None:
    """Also where what ran in it then has ended since: that was in it."""
    async with open_machine_room(tmp_path) as room:
        build = _waiting("eff-build")
        async with room.node("a") as node:
            machine = await room.create()
            await _ask(node, machine, build.model_copy(update={"background": True}))
            await room.keeper.do(machine.id, "hibernate")
            woken = await room.keeper.ensure_awake(machine.id)
            await room.exec(machine.id, "touch go", effect_id="eff-go")
            assert (await _ask(node, woken, build)).state == "finished"
            await room.keeper.do(machine.id, "hibernate")
            woken = await room.keeper.ensure_awake(machine.id)
            assert (await _come_up(room, machine))[1] == []
            await room.exec(machine.id, "rm go", effect_id="eff-no-go")
        async with room.node("b"):
            assert (await _come_up(room, machine))[1] == ["eff-no-go"]
