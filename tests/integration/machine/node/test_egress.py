"""The one way out of a machine, along the whole chain: program, relay in the guest, socket, proxy on the node, server.

The server is on the host's loopback, where nothing in a machine could come by itself.
"""

import shlex
from pathlib import Path

import pytest

from eventually import eventually
from integration.governance.egress import Origin, answering, echoing, open_origin
from machine_rooms import SMALL, MachineRoom, open_machine_room
from outlive.base import EffectId, MachineId, new_machine_id
from outlive.machine.spec import MachineSpec

pytestmark = pytest.mark.anyio

_GET = """
import sys, urllib.error, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""

_DIRECT = """
import socket, sys
for address in (("127.0.0.1", int(sys.argv[1])), ("1.1.1.1", 53), ("169.254.169.254", 80)):
    try:
        socket.create_connection(address, timeout=5)
        print("connected")
    except OSError as error:
        print("refused")
try:
    socket.getaddrinfo("example.com", 80)
    print("resolved")
except OSError:
    print("no names")
"""

# Keeps a tunnel open and says something now and then; when it is cut, makes a new one.
_TALKER = """
import os, socket, sys, time
def tunnel():
    connection = socket.create_connection(("127.0.0.1", 3128), timeout=20)
    target = f"127.0.0.1:{sys.argv[1]}"
    connection.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n".encode())
    assert b" 200 " in connection.recv(1000)
    return connection
def say(word):
    connection.sendall(word)
    return connection.recv(1000)
connection = tunnel()
assert say(b"one") == b"one"
open("/workspace/talking", "w")
while True:
    try:
        assert say(b".") == b"."
        time.sleep(0.02)
    except (OSError, AssertionError):
        break
while True:
    try:
        connection = tunnel()
        assert say(b"two") == b"two"
        break
    except (OSError, AssertionError):
        time.sleep(0.05)
print("talking again")
"""


def _python(program: str, *arguments: object) -> str:
    return f"exec python3 -c {shlex.quote(program)} {shlex.join(str(one) for one in arguments)}"


def _spec(origin: Origin) -> MachineSpec:
    return SMALL.model_copy(update={"egress": (f"127.0.0.1:{origin.port}",)})


async def _get(room: MachineRoom, machine: MachineId, port: int) -> str:
    done = await room.exec(machine, _python(_GET, f"http://127.0.0.1:{port}/"), env={"NO_PROXY": "", "no_proxy": ""})
    assert done.exit_code == 0, done.stderr
    return done.stdout


def _said(room: MachineRoom, machine: MachineId) -> list[tuple[str, str, int]]:
    return [(one.verdict, one.reason, one.port) for one in room.decisions if one.machine == machine]


async def test_what_is_listed_is_reached_all_else_is_refused_and_both_are_recorded(tmp_path: Path) -> None:
    async with (
        open_origin(answering()) as origin,
        open_origin(answering()) as other,
        open_machine_room(tmp_path) as room,
        room.node(),
    ):
        machine = await room.create(_spec(origin))
        assert await _get(room, machine.id, origin.port) == "200 hi\n"
        refused = await _get(room, machine.id, other.port)
        assert refused.startswith("403 ")
        assert "policy" in refused
        assert f"127.0.0.1:{other.port}" in refused
        assert other.connections == 0
        await eventually(lambda: len(_said(room, machine.id)) == 3)
        said = _said(room, machine.id)
        assert [(verdict, port) for verdict, _, port in said] == [
            ("allowed", origin.port),
            ("ended", origin.port),
            ("denied", other.port),
        ]
        assert said[2][1] == "not_listed"

        before = origin.connections
        direct = await room.exec(machine.id, _python(_DIRECT, origin.port))
        assert direct.stdout == "refused\nrefused\nrefused\nno names\n"
        assert origin.connections == before

        # Born of it, woken: each has the way out, under its own name.
        [child] = await room.keeper.fork(machine.id, [new_machine_id()], owner=machine.owner)
        room.decisions.clear()
        assert await _get(room, child.id, origin.port) == "200 hi\n"
        assert (await _get(room, child.id, other.port)).startswith("403 ")
        await eventually(lambda: len(_said(room, child.id)) == 3)
        assert _said(room, machine.id) == []
        await room.keeper.do(machine.id, "hibernate")
        assert await _get(room, machine.id, origin.port) == "200 hi\n"
        await eventually(lambda: len(_said(room, machine.id)) == 2)


async def test_a_checkpoint_cuts_connections_to_the_outside_and_the_program_can_make_new_ones(tmp_path: Path) -> None:
    async with open_origin(echoing) as origin, open_machine_room(tmp_path) as room, room.node():
        machine = await room.create(_spec(origin))
        effect = EffectId("eff-talker")
        command = _python(_TALKER, origin.port)
        await room.exec(machine.id, command, effect_id=effect, background=True)

        async def is_talking() -> bool:
            return (await room.exec(machine.id, "test -e /workspace/talking")).exit_code == 0

        await eventually(is_talking, within_s=30)
        saved = await room.records.checkpoints.get(await room.keeper.checkpoint(machine.id))
        assert saved.has_memory
        done = await room.exec(machine.id, command, effect_id=effect)
        assert (done.state, done.stdout) == ("finished", "talking again\n"), done.stderr
        assert origin.connections == 2
