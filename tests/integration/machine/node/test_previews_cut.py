"""A checkpoint of a machine that goes on: connections from outside are cut, the server in it goes on and is reached."""

from pathlib import Path

import anyio
import pytest

from eventually import eventually
from machine_rooms import open_machine_room
from outlive.machine.node.door import NodeDoor

pytestmark = pytest.mark.anyio

PORT = 8123
# Says its process id to whoever connects, and then keeps the connection open.
_SERVER = f"""
import os, socket
listener = socket.create_server(("127.0.0.1", {PORT}))
kept = []
while True:
    kept.append(listener.accept()[0])
    kept[-1].sendall(str(os.getpid()).encode())
"""


async def test_a_checkpoint_cuts_previews_and_their_server_goes_on(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        door = NodeDoor(node)
        await room.exec(machine.id, f"exec python3 -c '{_SERVER.replace(chr(39), chr(34))}'", background=True)

        async def is_serving() -> bool:
            return PORT in await door.ports(machine.id, machine.generation)

        await eventually(is_serving, within_s=20)
        async with await door.connect(machine.id, machine.generation, PORT) as preview:
            who = await preview.receive()
            saved = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
            assert saved.has_memory
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)), anyio.fail_after(20):
                await preview.receive()
        async with await door.connect(machine.id, machine.generation, PORT) as again:
            assert await again.receive() == who
