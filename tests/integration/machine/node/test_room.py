"""A node takes as many machines as it may, however many come at once."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import ConflictError, UnavailableError, new_machine_id
from outlive.machine.base import Base
from outlive.machine.node.node import Node
from outlive.machine.node.parts import Bases, NodeLimits
from outlive.machine.status import Machine

pytestmark = pytest.mark.anyio

_ONE = NodeLimits(machines=1)


class Unsteady:
    """Bases that are away for as long as somebody says."""

    def __init__(self, bases: Bases) -> None:
        self._bases = bases
        self.is_away = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bases, name)

    async def base(self, reference: str, key: str | None) -> Base:
        if self.is_away:
            raise UnavailableError("base.away", "away")
        return await self._bases.base(reference, key)


async def create_at_once(room: MachineRoom, number: int) -> tuple[list[Machine], list[str]]:
    """Those that are up, and what the others were told."""
    up: list[Machine] = []
    told: list[str] = []

    async def create() -> None:
        try:
            up.append(await room.create(machine=new_machine_id()))
        except ConflictError as error:
            told.append(error.message)

    async with anyio.create_task_group() as group:
        for _ in range(number):
            group.start_soon(create)
    return up, told


def sandboxes(node: Node) -> int:
    return len(list((node.parts.path / "machines").glob("*/*")))


async def test_of_machines_that_come_up_at_the_same_time_no_more_are_up_than_may_be(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node(limits=_ONE) as node:
        up, told = await create_at_once(room, 4)
        assert len(up) == 1
        assert len(told) == 3
        assert all("has no room" in each for each in told)
        assert (len(node.residents), sandboxes(node)) == (1, 1)
        assert (await room.exec(up[0].id, "echo on")).stdout == "on\n"
        await room.keeper.do(up[0].id, "hibernate")
        again = await room.create()
        with pytest.raises(ConflictError, match="has no room"):
            await room.exec(up[0].id, "true")
        await room.keeper.do(again.id, "delete")
        assert (await room.exec(up[0].id, "echo on")).stdout == "on\n"


async def test_a_machine_that_does_not_come_up_gives_its_place_back(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        bases = Unsteady(node.parts.bases)
    async with open_machine_room(tmp_path) as room, room.node(limits=_ONE, bases=bases) as node:
        with pytest.raises(ConflictError, match="away"):
            await room.create()
        assert (node.taking_places, sandboxes(node)) == (set(), 0)
        bases.is_away = False
        assert (await room.create()).state == "running"


async def test_a_machine_whose_coming_up_is_cut_off_gives_its_place_back(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node(limits=_ONE) as node:
        async with anyio.create_task_group() as group:
            group.start_soon(create_at_once, room, 1)
            await eventually(lambda: sandboxes(node) == 1)
            assert len(node.taking_places) == 1
            group.cancel_scope.cancel()
        assert (node.taking_places, sandboxes(node)) == (set(), 0)
        assert (await room.create()).state == "running"
