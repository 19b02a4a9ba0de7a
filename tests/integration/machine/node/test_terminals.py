"""Terminals on a node: every byte once and in order for everybody, through restarts of the node and sleep."""

from pathlib import Path

import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, BOT, Watcher, act, open_terminal, recorded, type_in
from machine_rooms import open_machine_room
from outlive.base import ConflictError
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.terminal.door import Take, Yield

pytestmark = pytest.mark.anyio


async def test_what_is_typed_and_printed_goes_on_under_one_count_through_a_restart_of_the_node(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        watcher = Watcher()
        async with room.node() as node:
            machine = await room.create()
            terminal = await open_terminal(node, machine)
            async with watcher.at(node, machine, terminal, ANN, "type"):
                await watcher.send(b"echo fir''st\n")
                await watcher.until_seen(b"first\r\n")
        async with room.node() as node:
            async with watcher.at(node, machine, terminal, ANN, "type"):
                await watcher.send(b"echo sec''ond; exit 3\n")
                await eventually(lambda: watcher.final is not None, 30)
            assert watcher.seen.count(b"first\r\n") == watcher.seen.count(b"second\r\n") == 1
            assert {"exit": 3, "signal": None} in watcher.words
            record = await room.records.terminals.get(terminal)
            assert (record.state, record.exit_code) == ("exited", 3)

            async def is_stored() -> bool:
                return (await room.records.terminals.get(terminal)).recorded_to == watcher.offset

            await eventually(is_stored, 30)
            assert await recorded(room, node, terminal) == watcher.seen
