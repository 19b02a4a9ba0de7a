"""Terminals over a node's real listeners: what the node says comes out as it was said, refusals with their facts."""

from pathlib import Path

import anyio
import pytest

from integration.node.local import open_local
from outlive.base import ConflictError, DeniedError, NotFoundError, OutliveError, new_principal_id, new_terminal_id
from outlive.governance.identity import PrincipalKind, rights_of
from outlive.machine.backends.node_http import dial
from outlive.machine.terminal.door import AttachTerminal, FrameStream, Input, OpenTerminal, Take
from outlive.machine.terminal.frames import Channel, read_status
from outlive.machine.terminal.status import Operator

pytestmark = pytest.mark.anyio


def _operator(name: str, kind: PrincipalKind) -> Operator:
    return Operator(id=new_principal_id(), name=name, kind=kind, rights=rights_of(kind))


ANN, BOT = _operator("ann", "person"), _operator("bot", "agent")
CAT = ("/bin/sh", "-c", "stty -echo; echo ready; exec cat")


async def _read_until(frames: FrameStream, text: bytes) -> bytes:
    seen = b""
    with anyio.fail_after(30):
        while text not in seen:
            frame = await frames.receive()
            assert frame is not None
            seen += frame[1] if frame[0] is Channel.OUTPUT else b""
    return seen


async def test_a_terminal_is_opened_attached_to_typed_into_and_taken_over_the_wire(tmp_path: Path) -> None:
    async with open_local(tmp_path) as node:
        machine, door = await node.create(), node.terminal_door
        terminal = new_terminal_id()
        opened = await door.open(
            machine.id, machine.generation, OpenTerminal(terminal=terminal, argv=CAT, owner=ANN.id)
        )
        assert (opened.terminal.id, opened.terminal.command) == (terminal, CAT)
        asked = AttachTerminal(operator=BOT, mode="type", offset=0, client="a test ✓")
        frames = await door.attach(machine.id, machine.generation, terminal, asked)
        first = await frames.receive()
        assert first is not None
        assert read_status(first[1])["offset"] == 0
        await _read_until(frames, b"ready")
        await frames.send(Channel.INPUT, b"typed\n")
        await _read_until(frames, b"typed\r\n")
        [view] = await door.views(machine.id, machine.generation)
        assert [(each.name, each.client) for each in view.operators] == [("bot", "a test ✓")]

        with pytest.raises(ConflictError) as leased:
            await door.act(machine.id, machine.generation, terminal, ANN, Input(data=b"\xff\x00\n"))
        assert (leased.value.code, leased.value.facts["operator"]) == ("terminal.leased", BOT.id)
        taken = await door.act(machine.id, machine.generation, terminal, ANN, Take())
        assert taken.terminal.lease is not None
        assert taken.terminal.lease.operator == ANN.id
        with pytest.raises(DeniedError):
            await door.act(machine.id, machine.generation, terminal, BOT, Take())
        await door.act(machine.id, machine.generation, terminal, ANN, Input(data=b"\xff-any-byte\n"))
        await _read_until(frames, b"\xff-any-byte\r\n")
        assert (await door.flush(machine.id, machine.generation, terminal)).recorded_to > 0
        await frames.aclose()


async def test_what_is_not_there_is_refused_before_anything_is_attached(tmp_path: Path) -> None:
    async with open_local(tmp_path) as node:
        machine, door = await node.create(), node.terminal_door
        asked = AttachTerminal(operator=ANN)
        with pytest.raises(NotFoundError):
            await door.attach(machine.id, machine.generation, new_terminal_id(), asked)
        with pytest.raises(NotFoundError):
            await door.view(machine.id, machine.generation, new_terminal_id())
        with pytest.raises(OutliveError):
            await door.attach(machine.id, machine.generation + 1, new_terminal_id(), asked)
        for line in (b"{}\n", b'{"token": "token-of-the-nodes", "machine": "mach_1", "generation": 1}\n'):
            stream = await dial(node.address.splice, None)
            async with stream:
                await stream.send(line)
                with anyio.fail_after(10):
                    assert b"request.malformed" in await stream.receive()
