"""What somebody has typed and not entered is never run together with an agent's command."""

from pathlib import Path

import pytest

from eventually import eventually
from integration.machine.node.test_shell_runs import Desk, desk
from integration.machine.node.watching import ANN, BOT, act, journal_of
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import ConflictError, new_machine_id
from outlive.machine.node.node import Node
from outlive.machine.node.terminals import shell_desk
from outlive.machine.node.terminals.shell_desk import ShellDesk
from outlive.machine.status import Effect
from outlive.machine.terminal.account import Account, Accounting
from outlive.machine.terminal.door import Input, Take, Yield

pytestmark = pytest.mark.anyio

HALF = b"touch /tmp/mixed; "


async def test_keys_that_a_stopped_shell_has_not_read_are_not_added_to_here_in_a_fork_or_on_a_restarted_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node() as node, desk(room, node) as at:
            await at.run("echo $$ > /tmp/shell")
            await _signal_shell(room, at, "STOP")
            await _leave(node, at, HALF)
            await _is_refused(at, monkeypatch)
            forked = await _fork(room, at)
            await _is_refused(forked, monkeypatch)
        async with room.node():  # as after the death of the first
            for each in (at, forked):
                await _is_refused(each, monkeypatch)
                await _signal_shell(room, each, "CONT")
                await _runs_whole(room, each)


async def test_a_line_that_somebody_left_is_given_up_and_what_comes_between_look_and_typing_is_noticed(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, desk(room, node) as at:
        await at.run("true")
        host = await at.host(node)
        start = host.recorder.offset
        await _leave(node, at, HALF)
        await _runs_whole(room, at)
        told = [(each.name, each.text) for each in _account(node, at, start).typed]
        assert told == [("ann", HALF.decode()), ("bot", "^C"), ("bot", "echo wh''ole\n")]
        await _leave(node, at, b"echo entered\r")
        await _leave(node, at, b"\x1b")  # a key that shows nothing, and changes what the next one means
        await _runs_whole(room, at)
        await _leave(node, at, b"if true; then\r")
        await _runs_whole(room, at)
        await _leave(node, at, b"sleep 1\rif :; then\r")  # the shell reads the second line when the first has ended
        await eventually(lambda: _has_shown(node, at, b"\x07if :; then\r\n"), 60)
        await _runs_whole(room, at)

        line = await ShellDesk(host, node.terminals.recordings, room.records.terminals).wait_for_line(BOT)
        await act(node, at.machine, at.terminal, BOT, Input(data=HALF))
        assert not await host.keyboard.type(BOT, b"echo added\r", only_at=line.input)
        await _runs_whole(room, at)

        await at.run("(until [ -e /tmp/quiet ]; do echo noise; sleep 0.05; done) &")
        await _runs_whole(room, at)
        await room.exec(at.machine.id, "touch /tmp/quiet")


async def _leave(node: Node, at: Desk, typed: bytes) -> None:
    for what in (Take(), Input(data=typed), Yield()):
        await act(node, at.machine, at.terminal, ANN, what)


async def _runs_whole(room: MachineRoom, at: Desk) -> None:
    ended: list[Effect] = []

    async def is_run() -> bool:
        try:
            ended.append(await at.run("echo wh''ole"))
        except ConflictError as error:
            if error.code != "terminal.busy":  # a whole line that was entered before still runs
                raise
        return bool(ended)

    await eventually(is_run, 60)
    done = ended[0]
    assert done.exit_code == 0
    assert "whole\n" in done.stdout
    assert (await room.exec(at.machine.id, "ls /tmp/mixed")).exit_code != 0


def _account(node: Node, at: Desk, start: int) -> Account:
    accounting = Accounting(start)
    for record in journal_of(node, at.terminal):
        if record.offset >= start:
            accounting.take(record)
    return accounting.account()


async def _has_shown(node: Node, at: Desk, text: bytes) -> bool:
    return text in await at.printed(node)


async def _is_refused(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as impatient:
        impatient.setattr(shell_desk, "PROMPT_WITHIN_S", 1.0)
        with pytest.raises(ConflictError, match="'ann' typed") as refused:
            await at.run("echo ne''ver")
    assert refused.value.code == "terminal.line_not_free"


async def _signal_shell(room: MachineRoom, at: Desk, name: str) -> None:
    assert (await room.exec(at.machine.id, f"kill -{name} $(cat /tmp/shell)")).exit_code == 0


async def _fork(room: MachineRoom, at: Desk) -> Desk:
    [child] = await room.keeper.fork(at.machine.id, [new_machine_id()], owner=ANN.id)
    born = await room.keeper.ensure_awake(child.id)

    async def has_its_own() -> bool:
        return len(await room.records.terminals.list(born.id)) == 1

    await eventually(has_its_own, 60)
    [own] = await room.records.terminals.list(born.id)
    return Desk(room, born, own.id)
