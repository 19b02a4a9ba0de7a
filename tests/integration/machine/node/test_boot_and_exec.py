"""A machine comes up, runs commands once, and leaves nothing."""

from pathlib import Path

import pytest

from machine_rooms import open_machine_room

pytestmark = pytest.mark.anyio


async def test_a_machine_runs_a_command_and_goes_without_a_trace(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        assert machine.state == "running", room.settler.failed
        done = await room.exec(machine.id, "echo out; echo err >&2; exit 3")
        assert (done.state, done.exit_code, done.stdout, done.stderr) == ("finished", 3, "out\n", "err\n")
        await room.keeper.do(machine.id, "delete")
        await room.empty()
