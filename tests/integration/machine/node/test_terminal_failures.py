"""Terminals of which something fails that nobody has foreseen: each is taken up again from its journal, and neither
another terminal nor the node ends with it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream

from eventually import eventually
from integration.machine.node.watching import ANN, BOT, Watcher, open_terminal, recorded, type_in
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import TerminalId, new_terminal_id
from outlive.machine.backends.screens.bittty import BitttyScreen
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.status import Machine
from outlive.machine.terminal.door import AttachTerminal, OpenTerminal

pytestmark = pytest.mark.anyio

CAT = ("/bin/sh", "-c", "stty -echo; echo ready; exec cat")


class BrittleScreen(BitttyScreen):
    def __init__(self, cols: int, rows: int, is_poison: Callable[[bytes], bool]) -> None:
        super().__init__(cols, rows)
        self._is_poison = is_poison

    def feed(self, data: bytes) -> None:
        if self._is_poison(data):
            raise RuntimeError("this engine cannot draw that")
        super().feed(data)


class BrittleScreens:
    """Fails as often as it should when it is to draw `poison`."""

    name = "brittle"

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def new(self, cols: int, rows: int) -> BrittleScreen:
        return BrittleScreen(cols, rows, self._is_poison)

    def _is_poison(self, data: bytes) -> bool:
        if b"poison" not in data or self.failures == 0:
            return False
        self.failures -= 1
        return True


class OddStream(ByteStream):
    """A connection that breaks as no connection should."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        raise LookupError("a bug")

    async def send(self, item: bytes) -> None: ...
    async def send_eof(self) -> None: ...
    async def aclose(self) -> None: ...


async def test_a_terminal_whose_host_fails_goes_on_from_its_journal_and_nothing_else_ends(tmp_path: Path) -> None:
    screens = BrittleScreens(failures=2)  # when it is printed, and when the screen is rebuilt from the journal
    async with open_machine_room(tmp_path) as room, room.node(screens=screens) as node:
        machine = await room.create()
        failing, other = [await open_terminal(node, machine, argv=CAT) for _ in range(2)]
        watcher, spared = Watcher(), Watcher()
        async with spared.at(node, machine, other):
            async with watcher.at(node, machine, failing):
                await watcher.until_seen(b"ready\r\n")
                await type_in(node, machine, failing, ANN, "before\n")
                await watcher.until_seen(b"before\r\n")
                await type_in(node, machine, failing, ANN, "poison\n")
                await eventually(lambda: watcher.is_over, 30)
            assert watcher.words[-1] == {"machine": "away"}
            await eventually(lambda: screens.failures == 0, 30)
            await eventually(lambda: failing in node.terminals._hosts, 30)
            async with watcher.at(node, machine, failing):
                await type_in(node, machine, failing, ANN, "after\n")
                await watcher.until_seen(b"after\r\n")
            await type_in(node, machine, other, ANN, "untouched\n")
            await spared.until_seen(b"untouched\r\n")
            assert not spared.is_over
        assert bytes(watcher.seen) == b"ready\r\nbefore\r\npoison\r\nafter\r\n"
        await NodeTerminalDoor(node).flush(machine.id, machine.generation, failing)
        assert await recorded(room, node, failing) == watcher.seen


async def test_an_attachment_that_fails_ends_alone(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine, argv=CAT)
        asked = AttachTerminal(operator=BOT)
        door = NodeTerminalDoor(node)
        async with door.attached(machine.id, machine.generation, terminal, asked) as observer:
            await observer.run(OddStream())
        watcher = Watcher()
        async with watcher.at(node, machine, terminal):
            await watcher.until_seen(b"ready\r\n")


async def test_a_terminal_whose_opener_left_while_it_was_written_down_is_there_for_the_next(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = new_terminal_id()
        request = OpenTerminal(terminal=terminal, argv=CAT, owner=ANN.id)
        leaving = anyio.CancelScope()

        async def open_and_leave() -> None:
            with leaving:
                await NodeTerminalDoor(node).open(machine.id, machine.generation, request)

        with closing(sqlite3.connect(tmp_path / "outlive.db", isolation_level=None)) as somebody:
            somebody.execute("BEGIN IMMEDIATE")  # nobody else writes for a moment
            async with anyio.create_task_group() as group:
                group.start_soon(open_and_leave)
                await eventually(lambda: room.records.terminals._database._writer._waiting > 0)  # type: ignore[attr-defined]
                leaving.cancel()
            somebody.execute("COMMIT")
        assert leaving.cancelled_caught
        await eventually(partial(is_written, room, machine, terminal))
        watcher = Watcher()
        async with watcher.at(node, machine, terminal):
            await watcher.until_seen(b"ready\r\n")


async def is_written(room: MachineRoom, machine: Machine, terminal: TerminalId) -> bool:
    return terminal in [record.id for record in await room.records.terminals.list(machine.id)]
