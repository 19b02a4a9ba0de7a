"""Two nodes, one database, one store. One of them dies for good, or is cut off: its machines come back on the other
from their last checkpoint, and what ran on the first stood still before that."""

import http.client
import json
import os
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from crash.machines.stacks import LEASES, SETTLED_WITHIN_S, CrashStack, Facts
from eventually import eventually, eventually_sync
from integration.machine.node.watching import BOT, open_terminal, type_in
from integration.stack.homes import COMMAND
from leaks import assert_nothing_left
from machine_rooms import MachineRoom, open_machine_room
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.machine.status import Machine
from outlive.wiring.node import cgroup_name

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("machine_two_nodes")]

FETCH = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/greeting').read().decode())\""
# A shell on a PTY of its own, with a variable that is nowhere but in its memory; asked over two named pipes.
SHELL = """
import os, pty
pid, tty = pty.fork()
if not pid:
    os.environ["PS1"] = ""
    os.execvp("bash", ["bash", "--norc", "--noprofile"])
os.write(tty, b"stty -echo; kept=only-here\\n")
while True:
    with open("ask") as ask:
        os.write(tty, ask.read().encode())
"""
# Leaves a sign of life on the disk, again and again, as long as it gets to run.
BEAT = """
import os, time
with open("beat", "w") as file:
    while True:
        os.pwrite(file.fileno(), str(time.time()).encode(), 0)
        os.fsync(file.fileno())
        time.sleep(0.02)
"""


class OtherNode:
    """A node beside the one of the stack, which nobody starts again."""

    def __init__(self, stack: CrashStack, path: Path) -> None:
        self.path = path
        self.socket = path.parent / f"{path.name}.sock"
        environment = {**stack.home.environment, "OUTLIVE_NODE__PATH": str(path), "OUTLIVE_MACHINES__LIMIT": "8"}
        environment["OUTLIVE_NODE__ADDRESS"] = f"unix:{self.socket}"
        self.log = path.parent / f"{path.name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*COMMAND, "node"], env=environment, stdout=log, stderr=log)
        eventually_sync(lambda: b'"serving"' in self.log.read_bytes(), 60.0)

    @property
    def id(self) -> str:
        return (self.path / "id").read_text()

    def beat_of(self, machine: str) -> float:
        """When the machine has last been seen to live here."""
        [file] = (self.path / "machines" / machine).glob("*/disk/upper/workspace/beat")
        return file.stat().st_mtime

    def end(self) -> None:
        self.process.kill()
        self.process.wait(30)
        sandboxes = open_gvisor_sandboxes(self.path, cgroup_name(self.path))

        async def end_all() -> None:
            for sandbox in await sandboxes.find_all():
                await sandboxes.destroy(sandbox)

        anyio.run(end_all)
        assert_nothing_left(self.path, cgroup_name(self.path), are_asleep=True)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashStack]:
    """Its own node has room for one machine only: so a test can say where the next one goes."""
    made = CrashStack(tmp_path_factory.mktemp("nodes"), OUTLIVE_MACHINES__LIMIT="1", **LEASES)
    with made.running() as stack, stack.trace.told_on_failure("the stack"):
        yield stack
        stack.down()


@contextmanager
def other_node(stack: CrashStack, path: Path) -> Iterator[OtherNode]:
    node = OtherNode(stack, path)
    try:
        yield node
    finally:
        node.end()


@contextmanager
def machine_on(stack: CrashStack, node: OtherNode) -> Iterator[str]:
    """A machine on that node; then there is room on the other one again."""
    with stack.trace.told_on_failure(f"what was done and seen; node {node.id}"):
        first = stack.create()
        second = stack.create()
        there, here = sorted((first, second), key=lambda machine: str(machine["node"]) != node.id)
        assert (there["node"] == node.id, here["node"] == node.id) == (True, False)
        stack.must(stack.do(here["id"], "delete"))
        yield str(there["id"])
        stack.must(stack.do(there["id"], "delete"))


def _exec(stack: CrashStack, machine: str, command: str, **fields: object) -> Facts:
    done = stack.must(stack.exec(machine, f"eff_{uuid.uuid4().hex}", command, **fields))
    assert fields or done["outcome"] == "finished", done
    return done


def _came_up_elsewhere(stack: CrashStack, machine: str, node: OtherNode) -> float:
    """Wait until it runs on another node; the moment at which it came up there."""
    found: list[Facts] = []

    def is_moved() -> bool:
        found[:] = [stack.look(machine)]
        return found[0]["state"] == "running" and found[0]["node"] not in (None, node.id)

    eventually_sync(is_moved, SETTLED_WITHIN_S, every_s=0.05)
    [*_, woken] = [event for event in stack.history(machine) if event["kind"] == "woken"]
    return datetime.fromisoformat(woken["at"]).astimezone(UTC).timestamp()


def test_machines_of_a_node_that_dies_for_good_come_back_on_the_other_with_all_that_ran(
    stack: CrashStack, tmp_path: Path
) -> None:
    with other_node(stack, tmp_path / "other") as node, machine_on(stack, node) as machine:
        _exec(stack, machine, "echo hello > greeting; nohup python3 -m http.server 8123 >/dev/null 2>&1 & mkfifo ask")
        _exec(stack, machine, f"python3 -c '{SHELL}'", background=True)
        _exec(stack, machine, f"python3 -c '{BEAT}'", background=True)
        _exec(stack, machine, "echo 'echo first-$kept > told' > ask; echo uncommitted > file")
        stack.must(stack.do(machine, "checkpoint"))
        later = _exec(stack, machine, "echo later > file")["effect_id"]
        assert node.id not in stack.rolled_back(machine)

        os.kill(node.process.pid, signal.SIGKILL)
        came_up_at = _came_up_elsewhere(stack, machine, node)

        assert node.beat_of(machine) < came_up_at, "it lived on beside its successor"
        assert _exec(stack, machine, FETCH)["stdout"] == "hello\n\n"
        told = (
            "echo 'echo $kept > told' > ask; until grep -qx only-here told 2>/dev/null; do sleep 0.05; done; cat file"
        )
        assert _exec(stack, machine, told)["stdout"] == "uncommitted\n"
        assert stack.rolled_back(machine) == {later}
        last_beat = node.beat_of(machine)
        assert _exec(stack, machine, "cat told")["stdout"] == "only-here\n"
        assert node.beat_of(machine) == last_beat, "what was left of it runs"


def test_a_node_that_was_cut_off_stood_still_before_its_machines_came_up_elsewhere(
    stack: CrashStack, tmp_path: Path
) -> None:
    with other_node(stack, tmp_path / "other") as node, machine_on(stack, node) as machine:
        _exec(stack, machine, f"python3 -c '{BEAT}'", background=True)
        stack.must(stack.do(machine, "checkpoint"))
        generation = stack.look(machine)["generation"]

        os.kill(node.process.pid, signal.SIGSTOP)
        came_up_at = _came_up_elsewhere(stack, machine, node)
        last_beat = node.beat_of(machine)
        assert last_beat < came_up_at, "it lived on beside its successor"

        stale = node.path / "machines" / machine
        beats: list[float] = []

        def is_destroyed() -> bool:
            if any(stale.glob("*/disk/upper/workspace/beat")):
                beats.append(node.beat_of(machine))
            return not stale.exists()

        os.kill(node.process.pid, signal.SIGCONT)
        assert _told_by(stack, node, machine, generation) in ("machine.fenced", "node.no_lease")
        eventually_sync(is_destroyed, 60.0)
        assert set(beats) <= {last_beat}, "it lived again when its node did"
        assert _told_by(stack, node, machine, generation) == "machine.fenced"


def _told_by(stack: CrashStack, node: OtherNode, machine: str, generation: int) -> str:
    """What the node says to a command for a generation that it once had."""
    token = (stack.home.path / "node.token").read_text().strip()
    request = {"effect_id": f"eff_{uuid.uuid4().hex}", "command": "echo alive >> beat"}
    connection = http.client.HTTPConnection("node", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(str(node.socket))
        connection.request(
            "POST",
            f"/machines/{machine}/{generation}/exec",
            json.dumps(request),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        return str(json.loads(connection.getresponse().read())["code"])
    finally:
        connection.close()


@pytest.mark.anyio
async def test_a_terminal_that_is_open_comes_back_on_the_other_node_with_its_shell(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node("a") as node:
            machine = await room.create()
            terminal = await open_terminal(node, machine, argv=None)
            await type_in(node, machine, terminal, BOT, "kept=only-here; echo set-$kept >set\n")
            await eventually(lambda: _says(room, machine, "set", "set-only-here\n"), 60)
            await room.keeper.checkpoint(machine.id)
        async with room.node("b") as other:
            await room.settler.settle(machine.id)
            moved = await room.keeper.get(machine.id)
            await type_in(other, moved, terminal, BOT, "echo told-$kept >told\n")
            await eventually(lambda: _says(room, moved, "told", "told-only-here\n"), 60)


async def _says(room: MachineRoom, machine: Machine, path: str, content: str) -> bool:
    return (await room.exec(machine.id, f"cat {path}")).stdout == content
