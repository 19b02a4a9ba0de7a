"""Many pass a gate, or one has it alone; whoever waits too long is told, and leaves nothing shut."""

import anyio
import pytest

from outlive.base import DeadlineError
from outlive.machine.node.gate import Gate

pytestmark = pytest.mark.anyio


async def test_many_are_inside_at_once() -> None:
    gate = Gate()
    async with gate.inside(1.0), gate.inside(1.0):
        pass


async def test_whoever_shuts_it_waits_for_those_inside_and_keeps_others_out() -> None:
    gate = Gate()
    order: list[str] = []
    is_shutting, may_leave = anyio.Event(), anyio.Event()

    async def shut() -> None:
        is_shutting.set()
        async with gate.shut(5.0):
            order.append("shut")

    async def come_later() -> None:
        async with gate.inside(5.0):
            order.append("late")

    async with anyio.create_task_group() as group, gate.inside(1.0):
        group.start_soon(shut)
        await is_shutting.wait()
        await anyio.lowlevel.checkpoint()
        group.start_soon(come_later)
        await anyio.lowlevel.checkpoint()
        order.append("leaving")
        may_leave.set()
    assert order == ["leaving", "shut", "late"]


async def test_one_who_cannot_have_it_in_time_is_told_and_it_stays_open() -> None:
    gate = Gate()
    async with gate.inside(1.0):
        with pytest.raises(DeadlineError):
            async with gate.shut(0.01):
                raise AssertionError("not alone")
        async with gate.inside(0.01):
            pass


async def test_a_second_who_shuts_it_waits_and_does_not_open_the_first_one_s() -> None:
    gate = Gate()
    async with gate.shut(1.0):
        with pytest.raises(DeadlineError):
            async with gate.shut(0.01):
                raise AssertionError("not alone")
        with pytest.raises(DeadlineError):
            async with gate.inside(0.01):
                raise AssertionError("it is shut")
    async with gate.inside(0.01):
        pass


async def test_one_who_is_cancelled_while_waiting_leaves_it_open() -> None:
    gate = Gate()
    async with gate.inside(1.0), anyio.create_task_group() as group:

        async def shut() -> None:
            async with gate.shut(60.0):
                raise AssertionError("not alone")

        group.start_soon(shut)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    async with gate.inside(0.01):
        pass
