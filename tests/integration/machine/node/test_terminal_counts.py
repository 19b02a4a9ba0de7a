"""The counts of output and input of a terminal on a node: what nobody has printed cannot be asked for, and what was
typed into a fork gets in once, whatever its parent had been typed before."""

from pathlib import Path

import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, BOT, Watcher, act, open_terminal, operator, type_in
from machine_rooms import open_machine_room
from outlive.base import ExhaustedError, InvalidError, TerminalId, new_machine_id
from outlive.machine.node.node import Node
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.status import Machine
from outlive.machine.terminal.door import Take
from outlive.machine.terminal.journal import Actor, Input, Mark
from outlive.machine.terminal.lease import decide_grant
from outlive.machine.terminal.newest import HandedOver
from outlive.machine.terminal.recording import Piece
from outlive.machine.terminal.status import Operator

pytestmark = pytest.mark.anyio

CARL = operator("carl")
CAT = ("/bin/sh", "-c", "stty -echo; echo ready; exec cat")


async def _open_cat(node: Node, machine: Machine) -> TerminalId:
    """One that repeats what is typed, from the first key on."""
    terminal, watcher = await open_terminal(node, machine, argv=CAT), Watcher()
    async with watcher.at(node, machine, terminal):
        await watcher.until_seen(b"ready\r\n")
    return terminal


async def test_output_that_is_not_there_yet_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine, argv=CAT)
        watcher = Watcher()
        async with watcher.at(node, machine, terminal):
            await watcher.until_seen(b"ready\r\n")
            with pytest.raises(InvalidError, match="yet") as refused:
                async with Watcher(10**12).at(node, machine, terminal):
                    pass
            assert refused.value.code == "terminal.offset_ahead"
            await type_in(node, machine, terminal, ANN, "still here\n")
            await watcher.until_seen(b"still here\r\n")


async def test_what_was_typed_into_a_fork_when_its_node_died_gets_in_once(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node() as node:
            parent = await room.create()
            terminal = await open_terminal(node, parent, argv=CAT)
            watcher = Watcher()
            async with watcher.at(node, parent, terminal):
                await watcher.until_seen(b"ready\r\n")
                await type_in(node, parent, terminal, ANN, "to the parent\n")
                await watcher.until_seen(b"to the parent\r\n")
            [child] = await room.keeper.fork(parent.id, [new_machine_id()], owner=parent.owner)
            child = await room.keeper.ensure_awake(child.id)

            async def is_met() -> bool:
                return bool(await room.records.terminals.list(child.id))

            await eventually(is_met, 30)
            [forked] = await room.records.terminals.list(child.id)
            await type_in(node, child, forked.id, ANN, "first\n")
            recorder = node.terminals._hosts[forked.id].recorder
            # As the node leaves it that dies after it has written down what is typed, and before it has sent it.
            who = Actor(ANN.id, ANN.name, ANN.kind)
            at = recorder.spool.input_offset
            recorder.note(Input(node.parts.clock.now(), recorder.offset, at, who, b"second\n"))
        async with room.node() as node:
            await type_in(node, child, forked.id, ANN, "third\n")
            watcher = Watcher()
            async with watcher.at(node, child, forked.id):
                await watcher.until_seen(b"third\r\n")
        assert bytes(watcher.seen) == b"ready\r\nto the parent\r\nfirst\r\nsecond\r\nthird\r\n"


@pytest.mark.parametrize("by", [BOT, ANN], ids=["its holder", "another"])
async def test_what_was_typed_when_the_node_died_gets_in_if_its_typist_has_handed_the_terminal_on_and_only_then(
    tmp_path: Path, by: Operator
) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node() as node:
            machine = await room.create()
            terminal = await _open_cat(node, machine)
            await type_in(node, machine, terminal, BOT, "first\n")
            host = node.terminals._hosts[terminal]
            recorder, now = host.recorder, node.parts.clock.now()
            # As the node leaves it that dies with something typed on its way, when a grant is in SQL.
            who, at = Actor(BOT.id, BOT.name, BOT.kind), recorder.spool.input_offset
            recorder.note(Input(now, recorder.offset, at, who, b"second\n"))
            held = recorder.card.terminal.lease
            granted = decide_grant(held, by, CARL, now=node.parts.clock.now(), offset=recorder.offset)
            await recorder.card.change(lambda found: found.model_copy(update={"lease": granted}))
        async with room.node() as node:
            await type_in(node, machine, terminal, CARL, "third\n")
            watcher = Watcher()
            async with watcher.at(node, machine, terminal):
                await watcher.until_seen(b"third\r\n")
        typed = [b"ready", b"first", *([b"second"] if by is BOT else []), b"third", b""]
        assert bytes(watcher.seen).split(b"\r\n") == typed


async def test_a_guest_that_did_not_hear_what_is_given_up_is_told_again_before_anything_else_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the line to it is full, or it has too much to answer: counted here and unknown there."""
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await _open_cat(node, machine)
        await type_in(node, machine, terminal, BOT, "first\n")
        keyboard, recorder = node.terminals._hosts[terminal].keyboard, node.terminals._hosts[terminal].recorder
        who, at = Actor(BOT.id, BOT.name, BOT.kind), recorder.spool.input_offset
        recorder.note(Input(node.parts.clock.now(), recorder.offset, at, who, b"given up\n"))
        recorder.note(Input(node.parts.clock.now(), recorder.offset, at + 9, who, b"this too\n"))
        attached = await keyboard._ready()
        lost: list[int | None] = []

        async def lose(upto: int | None = None) -> None:
            lost.append(attached._skip(upto))
            monkeypatch.undo()
            raise ExhaustedError("machine.guest_busy", "So many requests wait for an answer.")

        monkeypatch.setattr(attached, "drop_input", lose)
        with pytest.raises(ExhaustedError):
            await act(node, machine, terminal, ANN, Take())
        assert lost == [at + 18]

        async def counted() -> int:
            async with node.residents.get(machine.id, machine.generation).use() as guest:
                return (await guest.terminals.list())[0].input

        async def is_level() -> bool:
            return await counted() == at + 18

        await eventually(is_level, 30)  # nobody has typed
        await type_in(node, machine, terminal, ANN, "last\n")
        watcher = Watcher()
        async with watcher.at(node, machine, terminal):
            await watcher.until_seen(b"last\r\n")
        assert bytes(watcher.seen) == b"ready\r\nfirst\r\nlast\r\n"


async def test_what_is_not_stored_is_handed_over_as_it_is_and_much_of_it_is_stored_first(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await _open_cat(node, machine)
        door, segments = NodeTerminalDoor(node), (await room.records.terminals.get(terminal)).segments
        for word in ("one", "two"):
            await type_in(node, machine, terminal, ANN, f"{word}\n")
            watcher = Watcher()
            async with watcher.at(node, machine, terminal):
                await watcher.until_seen(word.encode() + b"\r\n")
            newest = await door.newest(machine.id, machine.generation, terminal)
            pieces = node.terminals.recordings.read_output(newest.terminal, local=HandedOver(newest))
            assert b"".join([piece.data async for piece in pieces if isinstance(piece, Piece)]) == watcher.seen
            assert newest.offset == watcher.offset
        assert (await room.records.terminals.get(terminal)).segments <= segments + 1, "by age, and not by looking"
        recorder = node.terminals._hosts[terminal].recorder
        for _ in range(20):
            recorder.note(Mark(node.parts.clock.now(), recorder.offset, "title", "x" * 60_000))
        held = (await door.newest(machine.id, machine.generation, terminal)).held
        assert sum(len(each.content) for each in held) < 60_000
