"""An agent's commands in a terminal that people watch and take: typed once, ended by marks, never by guesses."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, BOT, act, open_terminal
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import (
    ConflictError,
    DeniedError,
    EffectId,
    InvalidError,
    OutliveError,
    TerminalId,
    UnavailableError,
    new_effect_id,
)
from outlive.machine.door import Output
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.node import Node
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.node.terminals.host import TerminalHost
from outlive.machine.status import Effect, Machine
from outlive.machine.terminal.door import Input, RunInTerminal, Take, Yield
from outlive.machine.terminal.shell import digest_of_run

pytestmark = pytest.mark.anyio

COMES_S = 60.0


class Desk:
    """A machine with one terminal, and an agent who runs commands in it."""

    def __init__(self, room: MachineRoom, machine: Machine, terminal: TerminalId) -> None:
        self.room = room
        self.machine = machine
        self.terminal = terminal

    async def run(self, command: str, effect: EffectId | None = None, **fields: object) -> Effect:
        machine = await self.room.keeper.ensure_awake(self.machine.id)
        door = NodeTerminalDoor(self.room.node_of(machine))
        request = self.request(command, effect, **fields)
        with anyio.fail_after(COMES_S):
            return await door.run(machine.id, machine.generation, self.terminal, request)

    def request(self, command: str, effect: EffectId | None = None, **fields: object) -> RunInTerminal:
        return RunInTerminal.model_validate(
            {"effect_id": effect or new_effect_id(), "command": command, "operator": BOT, **fields}
        )

    async def host(self, node: Node) -> TerminalHost:
        resident = node.residents.get(self.machine.id, self.machine.generation)
        return await node.terminals.find(resident, self.terminal)

    async def printed(self, node: Node) -> bytes:
        pieces = [piece async for piece in (await self.host(node)).history(0)]
        return b"".join(getattr(piece, "data", b"") for piece in pieces)


@asynccontextmanager
async def desk(room: MachineRoom, node: Node) -> AsyncIterator[Desk]:
    machine = await room.create()
    yield Desk(room, machine, await open_terminal(node, machine, argv=None))


async def test_commands_share_a_shell_and_end_with_their_output_and_exit_code(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        done = await at.run("cd /tmp && export KEPT='a b'; echo one | cat; (exit 3)")
        assert (done.state, done.exit_code, done.stdout) == ("finished", 3, "one\n")
        done = await at.run('pwd\necho "$KEPT"\ncat <<END\n\ttabbed\nEND')
        assert (done.exit_code, done.stdout) == (0, "/tmp\na b\n\ttabbed\n")
        assert done.terminal == at.terminal
        refused = await at.run("echo )")
        assert refused.exit_code == 2
        assert "syntax error" in refused.stdout
        long = await at.run("seq 200000")
        assert long.truncated
        assert long.stdout.startswith("1\n2\n3\n")
        assert long.stdout_blob is not None
        raw = await room.objects.get(long.stdout_blob)
        assert raw.removesuffix(b"\x1b[?2004h") == "".join(f"{n}\r\n" for n in range(1, 200_001)).encode()
        assert long.output_start is not None
        assert long.output_end == long.output_start + len(raw)
        with pytest.raises(InvalidError):
            await at.run("echo \x03")


async def test_what_is_printed_is_told_as_it_comes(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        door, machine = NodeTerminalDoor(node), at.machine
        command = "echo first; until [ -e /tmp/go ]; do sleep 0.1; done; echo second"
        told = b""
        with anyio.fail_after(COMES_S):
            async for piece in door.follow(machine.id, machine.generation, at.terminal, at.request(command)):
                if isinstance(piece, Output):
                    assert piece.offset == len(told)
                    told += piece.data
                    if told.startswith(b"first\r\n"):
                        await room.exec(machine.id, "touch /tmp/go")
                else:
                    assert piece.stdout == "first\nsecond\n"
        assert told.startswith(b"first\r\nsecond\r\n")
        held = node.terminals._hosts[at.terminal].terminal.lease
        assert held is not None
        assert held.how == "run"


async def test_a_command_that_does_not_end_in_time_is_stopped_and_the_shell_goes_on(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        await at.run("sleep 1000 & KEPT=yes")
        done = await at.run("echo begun; sleep 2000", timeout_s=3)
        assert (done.state, done.exit_code) == ("timeout", 130)
        assert done.stdout.startswith("begun\n")
        done = await at.run("(trap '' INT; sleep 3000)", timeout_s=3)
        assert (done.state, done.exit_code) == ("timeout", 137)
        assert (await at.run("echo $KEPT; jobs")).stdout.startswith("yes\n[1]+  Running")


async def test_who_is_deaf_to_the_end_of_a_timed_out_command_ends_with_it_and_nobody_else(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        await at.run("sleep 1000 &")
        deaf = "(trap '' INT; exec sleep 2000) & (trap '' INT; exec setsid sleep 3000) & exec sleep 4000"
        done = await at.run(f'bash -c "{deaf}"', timeout_s=3)
        assert (done.state, done.exit_code) == ("timeout", 130), "it went by Ctrl-C, and the shell was back"

        async def slept() -> set[str]:
            found = await NodeDoor(node).processes(at.machine.id, at.machine.generation)
            return {each.command for each in found if each.state != "Z" and each.command.startswith("sleep")}

        await eventually(lambda: _is_so(slept, {"sleep 1000", "sleep 3000"}), COMES_S)
        assert (await at.run("jobs")).stdout.startswith("[1]+  Running")


async def _is_so(look: Callable[[], Awaitable[set[str]]], wanted: set[str]) -> bool:
    return await look() == wanted


async def test_asked_again_a_command_is_found_and_never_typed_again(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        effect = new_effect_id()
        command = "echo ru''n >> /tmp/runs; until [ -e /tmp/go ]; do sleep 0.1; done; wc -l < /tmp/runs"
        async with room.node() as node, desk(room, node) as at, anyio.create_task_group() as tasks:
            tasks.start_soon(at.run, command, effect)
            await eventually(lambda: _has_run(room, at), COMES_S)
            with pytest.raises(ConflictError, match="stands for another"):
                await at.run("echo other", effect)
            with pytest.raises(ConflictError, match="runs in this terminal"):
                await at.run("echo meanwhile")
            tasks.cancel_scope.cancel()
        async with room.node() as node:  # as after the death of the first
            await room.exec(at.machine.id, "touch /tmp/go")
            done = await at.run(command, effect)
            assert (done.state, done.exit_code, done.stdout) == ("finished", 0, "1\n")
            assert await at.run(command, effect) == done
            assert (await at.printed(node)).count(b"wc -l < /tmp/runs\r\n") == 1


async def _has_run(room: MachineRoom, at: Desk) -> bool:
    return (await room.exec(at.machine.id, "test -s /tmp/runs")).exit_code == 0


async def test_an_effect_that_was_begun_and_not_typed_is_typed_when_it_is_asked_for_again(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        effect = new_effect_id()
        await room.records.effects.begin(
            at.machine.id,
            effect,
            node=node.parts.node,
            generation=at.machine.generation,
            digest=digest_of_run(at.terminal, "echo on''ce"),
            at=node.parts.clock.now(),
        )
        assert (await at.run("echo on''ce", effect)).stdout == "once\n"
        assert (await at.run("echo on''ce", effect)).stdout == "once\n"
        assert (await at.printed(node)).count(b"\x07once\r\n") == 1


async def test_a_command_goes_on_while_its_machine_sleeps_and_ends_after_it_wakes(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        effect = new_effect_id()
        command = "until [ -e /tmp/go ]; do sleep 0.1; done; echo wo''ken"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run_to_its_end, at, command, effect)
            await eventually(lambda: _is_begun(room, at, effect), COMES_S)
            await room.keeper.do(at.machine.id, "hibernate")
            tasks.cancel_scope.cancel()
        await room.exec(at.machine.id, "touch /tmp/go")
        assert (await at.run(command, effect)).stdout == "woken\n"


async def _run_to_its_end(at: Desk, command: str, effect: EffectId) -> None:
    with suppress(OutliveError):  # its machine sleeps: it is asked for again
        await at.run(command, effect)


async def _is_begun(room: MachineRoom, at: Desk, effect: EffectId) -> bool:
    return await room.records.effects.find(at.machine.id, effect) is not None


async def test_a_person_who_takes_the_terminal_stops_what_was_not_typed_and_nothing_that_runs(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        await at.run("true")
        ended: list[Effect] = []

        async def run_long() -> None:
            ended.append(await at.run("until [ -e /tmp/go ]; do sleep 0.1; done; echo en''ded", timeout_s=50))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_long)
            await eventually(lambda: _is_running(node, at), COMES_S)
            await act(node, at.machine, at.terminal, ANN, Take())
            with pytest.raises(ConflictError, match="holds this terminal"):
                await at.run("echo never")
            await room.exec(at.machine.id, "touch /tmp/go")
        assert ended[0].stdout == "ended\n"
        await act(node, at.machine, at.terminal, ANN, Input(data=b"rm -rf half-ty''ped"))
        await act(node, at.machine, at.terminal, ANN, Yield())
        whole = await at.run("echo wh''ole")
        assert whole.stdout == "whole\n", (whole, await at.printed(node))


async def _is_running(node: Node, at: Desk) -> bool:
    return (await at.host(node)).recorder.commands.running is not None


async def test_a_command_of_a_machine_that_a_person_paused_is_waited_for_and_does_not_run_out_of_time(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        ended: list[Effect] = []

        async def run_long() -> None:
            ended.append(await at.run("until [ -e /tmp/go ]; do sleep 0.1; done; echo en''ded", timeout_s=8))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_long)
            await eventually(lambda: _is_running(node, at), COMES_S)
            await room.keeper.do(at.machine.id, "pause")
            paused_at, keyboard = node.parts.clock.monotonic(), (await at.host(node)).keyboard
            await eventually(lambda: keyboard.used_at > paused_at + 8, COMES_S)  # it was looked after for so long
            assert ended == []
            await room.keeper.do(at.machine.id, "resume")
            await room.exec(at.machine.id, "touch /tmp/go")
        assert (ended[0].state, ended[0].stdout) == ("finished", "ended\n")


async def test_the_end_of_the_shell_is_the_end_of_its_command(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        done = await at.run("echo bye; exit 7")
        assert (done.state, done.exit_code) == ("finished", 7)
        assert done.stdout.startswith("bye\n")
        with pytest.raises(ConflictError):
            await at.run("echo more")
        machine = await room.keeper.ensure_awake(at.machine.id)
        other = Desk(room, machine, await open_terminal(node, machine, argv=("sleep", "1000")))
        watcher = BOT.model_copy(update={"rights": frozenset({"observe"})})
        with pytest.raises(DeniedError):
            await other.run("echo nobody", operator=watcher)


@pytest.mark.parametrize("way", ["typed", "by itself"])
async def test_a_node_that_is_stopped_in_the_middle_of_a_command_says_so_and_the_next_one_tells_its_end(
    tmp_path: Path, way: str
) -> None:
    """Never that it is over: it goes on in its machine."""
    effect, told = new_effect_id(), list[str]()
    command = "until [ -e /tmp/go ]; do sleep 0.05; done; echo survived"
    async with open_machine_room(tmp_path) as room:
        async with anyio.create_task_group() as group, room.node() as node, desk(room, node) as at:

            async def run() -> None:
                try:
                    told.append((await _asked(at, way, command, effect)).state)
                except UnavailableError as error:
                    told.append(error.code)

            group.start_soon(run)
            await eventually(lambda: _is_begun(room, at, effect), COMES_S)
        assert told == ["node.away"]
        async with room.node():
            await room.exec(at.machine.id, "touch /tmp/go")
            done = await _asked(at, way, command, effect)
        assert (done.state, done.exit_code, done.stdout) == ("finished", 0, "survived\n")


async def _asked(at: Desk, way: str, command: str, effect: EffectId) -> Effect:
    if way == "typed":
        return await at.run(command, effect)
    return await at.room.exec(at.machine.id, command, effect_id=effect)
