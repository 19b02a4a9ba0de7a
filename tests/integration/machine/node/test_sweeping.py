"""The room of checkpoints that nobody needs is given back."""

from pathlib import Path

import pytest

from machine_rooms import open_machine_room
from outlive.base import SystemClock, new_machine_id
from outlive.machine.checkpoint import CheckpointStore
from outlive.machine.sweeper import Sweeper

pytestmark = pytest.mark.anyio


async def test_what_a_deleted_machine_left_is_swept_when_the_last_that_was_born_from_it_is_gone(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        sweeper = Sweeper(room.records.checkpoints, CheckpointStore(room.objects), SystemClock())
        parent = await room.create()
        [child] = await room.keeper.fork(parent.id, [new_machine_id()], owner=parent.owner)
        await room.keeper.do(parent.id, "delete")
        await sweeper.look_once()
        await room.keeper.do(child.id, "hibernate")
        assert (await room.exec(child.id, "echo here")).stdout == "here\n"
        await room.keeper.do(child.id, "delete")
        swept = await sweeper.look_once()
        assert swept is not None
        assert swept.objects > 0
        assert [found.key async for found in room.objects.list("checkpoints")] == []
        assert await sweeper.look_once() is None  # nothing has gone since
