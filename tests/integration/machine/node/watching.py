"""Operators at terminals of a machine room: one who watches keeps every byte with its offset, and all that was said."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson

from eventually import eventually
from machine_rooms import MachineRoom
from outlive.base import TerminalId, new_principal_id, new_terminal_id
from outlive.governance.identity import PrincipalKind, rights_of
from outlive.machine.node.node import Node
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.status import Machine
from outlive.machine.terminal.door import Act, AttachTerminal, FrameStream, Input, Mode, OpenTerminal, TerminalView
from outlive.machine.terminal.frames import Channel
from outlive.machine.terminal.journal import Record, read_all
from outlive.machine.terminal.recording import Piece
from outlive.machine.terminal.status import Operator

SHELL = ("/bin/bash", "--norc", "--noprofile")


def operator(name: str, kind: PrincipalKind = "person") -> Operator:
    return Operator(id=new_principal_id(), name=name, kind=kind, rights=rights_of(kind))


ANN = operator("ann")
BOT = operator("bot", "agent")


class Watcher:
    """What came of one attachment after the other, as one client sees it."""

    def __init__(self, offset: int | None = 0) -> None:
        self.begun = offset or 0
        self.offset = offset  # of the next byte
        self.seen = bytearray()  # the output, without the drawing of a screen
        self.drawn = bytearray()
        self.words: list[dict[str, Any]] = []
        self.final: dict[str, Any] | None = None
        self.is_over = False
        self._may_read = anyio.Event()
        self._may_read.set()
        self._is_drawing = False
        self._frames: FrameStream | None = None

    @asynccontextmanager
    async def at(
        self, node: Node, machine: Machine, terminal: TerminalId, who: Operator = ANN, mode: Mode = "observe"
    ) -> AsyncIterator["Watcher"]:
        request = AttachTerminal(operator=who, mode=mode, offset=self.offset, client="test")
        self._frames = await NodeTerminalDoor(node).attach(machine.id, machine.generation, terminal, request)
        self.is_over = False
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch)
                yield self
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._frames.aclose()

    async def _watch(self) -> None:
        assert self._frames is not None
        while (frame := await self._frames.receive()) is not None:
            self._take(*frame)
            await self._may_read.wait()
        self.is_over = True

    def hold(self) -> None:
        """Read nothing more."""
        self._may_read = anyio.Event()

    def go_on(self) -> None:
        self._may_read.set()

    def taken(self, payload: bytes) -> None:
        """For those who want to know more of it."""

    def _take(self, channel: Channel, payload: bytes) -> None:
        if channel is Channel.OUTPUT and self._is_drawing:
            self.drawn += payload
        elif channel is Channel.OUTPUT:
            assert self.offset is not None
            self.seen += payload
            self.offset += len(payload)
            self.taken(payload)
        elif channel is Channel.FINAL:
            self.final = orjson.loads(payload)
        else:
            words = orjson.loads(payload)
            self.words.append(words)
            if "offset" in words:
                self._is_drawing = bool(words.get("screen"))
                assert self.offset is None or words["offset"] >= self.offset, "offsets never go back"
                self.offset = words["offset"]

    async def send(self, data: bytes) -> None:
        assert self._frames is not None
        await self._frames.send(Channel.INPUT, data)

    async def resize(self, cols: int, rows: int) -> None:
        assert self._frames is not None
        await self._frames.send(Channel.RESIZE, orjson.dumps({"Width": cols, "Height": rows}))

    def said(self, name: str) -> list[Any]:
        return [words[name] for words in self.words if name in words]

    async def until_seen(self, text: bytes, within_s: float = 30.0) -> None:
        await eventually(lambda: text in self.seen, within_s)


async def open_terminal(
    node: Node, machine: Machine, *, argv: tuple[str, ...] | None = SHELL, owner: Operator = ANN
) -> TerminalId:
    terminal = new_terminal_id()
    request = OpenTerminal(terminal=terminal, argv=argv, owner=owner.id, env={"PS1": "$ "})
    await NodeTerminalDoor(node).open(machine.id, machine.generation, request)
    return terminal


async def act(node: Node, machine: Machine, terminal: TerminalId, who: Operator, what: Act) -> TerminalView:
    return await NodeTerminalDoor(node).act(machine.id, machine.generation, terminal, who, what)


async def type_in(node: Node, machine: Machine, terminal: TerminalId, who: Operator, text: str) -> TerminalView:
    return await act(node, machine, terminal, who, Input(data=text.encode()))


def journal_of(node: Node, terminal: TerminalId) -> list[Record]:
    """All that its host has on its disk."""
    spool = node.terminals._hosts[terminal].recorder.spool
    return [each for n in spool.numbers() for each in read_all(spool.content(n) or b"").records]


async def recorded(room: MachineRoom, node: Node, terminal: TerminalId, start: int = 0) -> bytes:
    """All of the output that is in the object store, which must have no gap."""
    record = await room.records.terminals.get(terminal)
    found = bytearray()
    async for piece in node.terminals.recordings.read_output(record, start):
        assert isinstance(piece, Piece), piece
        found += piece.data
    return bytes(found)
