"""Machines that nobody uses: frozen, then hibernated, and there again for the first who asks.

The node's own watch does it, with short times.
"""

import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from integration.governance.egress import LOOPBACK, echoing, open_origin
from leaks import nothing_is_left
from machine_rooms import SMALL, MachineRoom, open_machine_room
from outlive.base import ConflictError
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.idle import IdlePolicy
from outlive.machine.node.node import Node
from outlive.machine.node.watch import watch_residents
from outlive.machine.sandbox import SandboxState
from outlive.machine.status import Machine

pytestmark = pytest.mark.anyio

_THAWED_WITHIN_S = 20.0  # on a busy host; alone it takes some milliseconds, and one that is not thawed never answers
_SERVER = "nohup python3 -m http.server 8123 --directory /workspace >/dev/null 2>&1 &"
_SPINNER = "nohup sh -c 'while :; do :; done' >/dev/null 2>&1 &"
_LONGER_THAN_THREE_LOOKS = "sleep 3.5; echo done"


@asynccontextmanager
async def _watched_node(room: MachineRoom, policy: IdlePolicy) -> AsyncIterator[Node]:
    async with room.node(idle=policy) as node, anyio.create_task_group() as group:
        group.start_soon(watch_residents, node)
        yield node
        group.cancel_scope.cancel()


async def _sandbox_state(node: Node, machine: Machine) -> SandboxState:
    return await node.parts.sandboxes.state(node.residents.get(machine.id, machine.generation).sandbox)


async def _wait_until_frozen(node: Node, machine: Machine) -> None:
    async def is_frozen() -> bool:
        found = node.residents.get(machine.id, machine.generation)
        return "idle" in found.frozen and await _sandbox_state(node, machine) == "frozen"

    await eventually(is_frozen, within_s=20)


async def _cpu_s(node: Node, machine: Machine) -> float:
    sandbox = node.residents.get(machine.id, machine.generation).sandbox
    return (await node.parts.sandboxes.usage(sandbox)).cpu_s


async def test_an_idle_machine_is_frozen_and_thawed_by_whoever_asks_while_one_in_use_is_left_alone(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room, _watched_node(room, IdlePolicy(0.5, None)) as node:
        idle, busy = await room.create(), await room.create()
        door = NodeDoor(node)
        await room.exec(idle.id, f"echo hello > greeting; {_SERVER} {_SPINNER}")

        async def is_serving() -> bool:
            return 8123 in await door.ports(idle.id, idle.generation)

        await eventually(is_serving, within_s=20)
        await _wait_until_frozen(node, idle)
        before = await _cpu_s(node, idle)
        done = await room.exec(busy.id, _LONGER_THAN_THREE_LOOKS, timeout_s=30)
        assert (done.state, done.stdout) == ("finished", "done\n"), "a machine with a command is not frozen"
        assert await _cpu_s(node, idle) == before, "a frozen machine uses no CPU, whatever runs in it"
        assert (await room.keeper.get(idle.id)).state == "running"

        begun = time.monotonic()
        assert (await room.exec(idle.id, "cat greeting")).stdout == "hello\n"
        assert time.monotonic() - begun < _THAWED_WITHIN_S
        await _wait_until_frozen(node, idle)

        begun = time.monotonic()
        async with door.read_file(idle.id, idle.generation, "greeting") as content:
            assert b"".join([data async for data in content]) == b"hello\n"
        assert time.monotonic() - begun < _THAWED_WITHIN_S
        await _wait_until_frozen(node, idle)

        begun = time.monotonic()
        async with await door.connect(idle.id, idle.generation, 8123) as preview:
            assert time.monotonic() - begun < _THAWED_WITHIN_S
            await room.exec(busy.id, _LONGER_THAN_THREE_LOOKS)
            assert await _sandbox_state(node, idle) == "running", "a machine that is looked into is not frozen"
            await preview.send(b"GET /greeting HTTP/1.0\r\n\r\n")
            assert (await preview.receive()).startswith(b"HTTP/1.0 200 ")
        await _wait_until_frozen(node, idle)


# Holds a tunnel through the proxy, and says nothing.
_TUNNEL = """
import socket, sys, time
tunnel = socket.create_connection(("127.0.0.1", 3128), timeout=20)
tunnel.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nHost: {sys.argv[1]}\\r\\n\\r\\n".encode())
assert b" 200 " in tunnel.recv(1000)
open("open", "w")
time.sleep(1000)
"""


@pytest.mark.parametrize("policy", [IdlePolicy(1.0, None), IdlePolicy(None, 1.0)])
async def test_a_machine_with_a_connection_to_the_outside_is_neither_frozen_nor_hibernated(
    tmp_path: Path, policy: IdlePolicy
) -> None:
    async with (
        open_origin(echoing) as origin,
        open_machine_room(tmp_path) as room,
        _watched_node(room, policy) as node,
    ):
        outside = f"{LOOPBACK}:{origin.port}"
        machine = await room.create(SMALL.model_copy(update={"egress": (outside,)}))
        tunnel = f"nohup python3 -c {shlex.quote(_TUNNEL)} {outside} >said 2>&1 &"
        opened = await room.exec(machine.id, f"{tunnel} until [ -e open ]; do kill -0 $! || break; done; cat said")
        assert opened.stdout == ""
        resident = node.residents.get(machine.id, machine.generation)
        uses: set[float] = set()

        async def is_found_in_use_again_and_again() -> bool:
            uses.add(resident._used_at)
            return len(uses) > 2 or resident.ended is not None

        await eventually(is_found_in_use_again_and_again, within_s=30)
        assert (resident.ended, resident.frozen) == (None, set())
        assert (await room.keeper.get(machine.id)).desired == "running"
        await room.exec(machine.id, "pkill -f 'tunnel[.]recv'")
        if policy.freeze_after_s is not None:
            await _wait_until_frozen(node, machine)
        else:
            await eventually(lambda: resident.ended == "hibernated", within_s=60)


async def test_an_idle_machine_is_hibernated_and_a_paused_one_stays_as_the_person_left_it(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, _watched_node(room, IdlePolicy(0.3, 2.0)) as node:
        paused = await room.create()
        await room.keeper.do(paused.id, "pause")  # before it has been idle for long enough
        idle = await room.create()
        await room.exec(idle.id, "echo kept > /tmp/in-memory")

        async def is_hibernated() -> bool:
            return (await room.keeper.get(idle.id)).state == "hibernated"

        await eventually(is_hibernated, within_s=30)
        with pytest.raises(ConflictError, match="paused"):
            await room.exec(paused.id, "true")
        assert await _sandbox_state(node, paused) == "frozen"
        assert (await room.keeper.get(paused.id)).state == "paused"

        await room.keeper.do(paused.id, "delete")
        # What is hibernated has no process, no mount, no memory, no directory.
        await nothing_is_left(tmp_path / "a", room.cgroup("a"))
        assert (await room.exec(idle.id, "cat /tmp/in-memory")).stdout == "kept\n"
