"""The one way out of a machine, along the whole chain: program, relay in the guest, socket, proxy on the node, server.

The server is on the host's loopback, where nothing in a machine could come by itself.
"""

import shlex
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually
from integration.governance.egress import LOOPBACK, Origin, answering, connect, echoing, get, open_origin
from machine_rooms import SMALL, MachineRoom, open_machine_room
from outlive.base import EffectId, MachineId, SystemClock, new_machine_id, new_principal_id
from outlive.governance.egress_shared import open_shared_egress
from outlive.machine.node.egress import SOCKET, open_egress
from outlive.machine.node.node import Node
from outlive.machine.records import Decide, Gone, MachineRecords
from outlive.machine.sandbox import Sandbox
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Machine

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


class Slow:
    """Records that take their time to write that a machine runs."""

    def __init__(self, records: MachineRecords, origin: Origin) -> None:
        self._records = records
        self._origin = origin
        self.is_slow = False
        self.heard_before = 0  # connections that came while the record did not say so yet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    async def change(self, machine: MachineId, decide: Decide, *, gone: Gone | None = None) -> Machine:
        before = await self._records.get(machine)
        if self.is_slow and before.is_booting:
            self.is_slow = False
            known = self._origin.connections
            with anyio.move_on_after(1.5):  # it would come within milliseconds
                await eventually(lambda: self._origin.connections != known, within_s=60)
            self.heard_before = self._origin.connections - known
        return await self._records.change(machine, decide, gone=gone)


async def test_nothing_goes_out_before_the_records_say_that_this_is_the_machine(tmp_path: Path) -> None:
    async with open_origin(echoing) as origin, open_machine_room(tmp_path) as room:
        records = Slow(room.records.machines, origin)
        async with room.node(machines=records):
            machine = await room.create(_spec(origin))
            command, effect = _python(_TALKER, origin.port), EffectId("eff-talker")
            await room.exec(machine.id, command, effect_id=effect, background=True)

            async def is_talking() -> bool:
                return (await room.exec(machine.id, "test -e /workspace/talking")).exit_code == 0

            await eventually(is_talking, within_s=30)
            await room.keeper.do(machine.id, "hibernate")
            records.is_slow = True
            done = await room.exec(machine.id, command, effect_id=effect)
            assert (done.state, done.stdout) == ("finished", "talking again\n"), done.stderr
            assert not records.is_slow
            assert (records.heard_before, origin.connections) == (0, 2)


class WayOut:
    """What a machine without a sandbox sees of the outside: its socket."""

    def __init__(self, machine: MachineId, path: Path) -> None:
        self.machine = machine
        self._path = path

    async def dial(self, request: bytes) -> anyio.abc.SocketStream:
        stream = await anyio.connect_unix(self._path)
        await stream.send(request)
        return stream

    async def ask(self, request: bytes) -> bytes:
        async with await self.dial(request) as stream:
            return b"".join([piece async for piece in stream])


@asynccontextmanager
async def _way_out(node: Node, path: Path, *rules: str) -> AsyncIterator[WayOut]:
    now, spec, machine = SystemClock().now(), SMALL.model_copy(update={"egress": rules}), new_machine_id()
    record = Machine(
        id=machine, owner=new_principal_id(), environment="test", spec=spec, created_at=now, changed_at=now
    )
    sandbox = Sandbox(machine, 1, path, spec.limits)
    sandbox.host_path.mkdir(parents=True)
    counted = anyio.Event()
    counted.set()
    async with open_egress(node.parts, record, sandbox, after=counted):
        yield WayOut(machine, sandbox.host_path / SOCKET)


async def test_a_machine_whose_names_nobody_answers_keeps_no_other_from_looking_its_own_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    may_answer = threading.Event()
    resolver: Callable[..., Any] = socket.getaddrinfo

    def look_up(name: Any, *given: Any, **named: Any) -> Any:
        if not str(name).endswith(".test"):
            return resolver(name, *given, **named)
        asked.append(name)
        if name.endswith("slow.test"):
            may_answer.wait(60)
            raise socket.gaierror("nobody answered")
        return resolver(LOOPBACK, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)  # the host's resolver
    async with open_origin(answering()) as origin, open_machine_room(tmp_path) as room, room.node() as node:
        own = (f"quick.test:{origin.port}", f"{LOOPBACK}:{origin.port}")
        async with (
            _way_out(node, tmp_path / "1", "*.slow.test:443") as greedy,
            _way_out(node, tmp_path / "2", *own) as neighbour,
        ):
            held = [await greedy.dial(connect(f"n{number}.slow.test:443")) for number in range(40)]
            try:
                await eventually(lambda: len(asked) == 4 and len(_said(room, greedy.machine)) == 40)
                with anyio.fail_after(5):
                    answer = await neighbour.ask(get(f"http://quick.test:{origin.port}/"))
            finally:
                may_answer.set()
            assert answer.endswith(b"hi")
            assert asked[4] == "quick.test", "and no more at a time of the other"
            for stream in held:
                await stream.aclose()


async def test_a_machine_that_dials_without_end_is_refused_while_its_neighbour_finds_a_place(tmp_path: Path) -> None:
    with open_shared_egress(connections=8, machines=2) as egress:
        async with (
            open_origin(answering()) as origin,
            open_machine_room(tmp_path) as room,
            room.node(egress=egress) as node,
            _way_out(node, tmp_path / "1") as greedy,
            _way_out(node, tmp_path / "2", f"{LOOPBACK}:{origin.port}") as neighbour,
        ):
            held = [await greedy.dial(b"GET http://x/ HTTP/1.1\r\nX: ") for _ in range(4)]
            await eventually(lambda: egress.places.free == 2)
            refused = await greedy.ask(get("http://x/"))
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"its host has no place for more of them now" in refused
            assert (await neighbour.ask(get(f"http://{LOOPBACK}:{origin.port}/"))).endswith(b"hi")
            for stream in held:
                await stream.aclose()
            await eventually(lambda: egress.places.free == 4)
            assert (await greedy.ask(get("http://x/"))).startswith(b"HTTP/1.1 403 ")
