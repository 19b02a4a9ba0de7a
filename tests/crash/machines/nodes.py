"""Two nodes, one database, one store: the stack's own node, which its supervisor starts again, and one beside it. What
a machine leaves on the disk of a node says when it has last lived there."""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio

from crash.machines.stacks import CrashStack
from eventually import eventually_sync
from integration.stack.homes import COMMAND
from leaks import assert_nothing_left
from outlive.machine.backends.gvisor.cgroups import find_cgroups, parse_mounts
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.wiring.node import cgroup_name

# Leaves a sign of life on the disk, again and again, as long as it gets to run and nobody takes it away.
BEAT = """
import os, time
with open("beat", "w") as file:
    while os.path.exists("beat"):
        os.pwrite(file.fileno(), str(time.time()).encode(), 0)
        os.fsync(file.fileno())
        time.sleep(0.02)
"""
START_WITHIN_S = 60.0


class House:
    """A node and its folder."""

    def __init__(self, name: str, path: Path, socket_path: Path) -> None:
        self.name = name
        self.path = path
        self.socket = socket_path

    @property
    def id(self) -> str:
        return (self.path / "id").read_text()

    @property
    def pid(self) -> int | None:
        """None while it is being started again."""
        raise NotImplementedError

    @property
    def is_frozen(self) -> bool:
        """Whether the watchdog keeps all that is here from running."""
        switch = find_cgroups(parse_mounts(Path("/proc/mounts").read_text())).switch(cgroup_name(self.path))
        with suppress(OSError):  # nothing is here
            return (switch.folder / switch.file).read_text().strip() == switch.frozen
        return False

    def sandbox_path(self, machine: str, generation: int) -> Path:
        return self.path / "machines" / machine / str(generation)

    def beat_of(self, machine: str, generation: int | None = None) -> float | None:
        """When the machine has last been seen to live here; None if nothing of that is here."""
        generations = "*" if generation is None else str(generation)
        beats: list[float] = []
        for file in (self.path / "machines" / machine).glob(f"{generations}/disk/upper/workspace/beat"):
            with suppress(OSError):
                beats.append(file.stat().st_mtime)
        return max(beats, default=None)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Inside, its process is there and does nothing; the machines here know nothing of that."""
        eventually_sync(lambda: self.pid is not None, START_WITHIN_S)
        pid = self.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def told_by(self, stack: CrashStack, machine: str, generation: int) -> str:
        """What the node says to a command for a generation that it once had."""
        token = (stack.home.path / "node.token").read_text().strip()
        request = {"effect_id": f"eff_{uuid.uuid4().hex}", "command": "echo alive >> beat"}
        connection = http.client.HTTPConnection("node", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(str(self.socket))
            connection.request(
                "POST",
                f"/machines/{machine}/{generation}/exec",
                json.dumps(request),
                {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
            return str(json.loads(connection.getresponse().read()).get("code"))
        finally:
            connection.close()


class OwnNode(House):
    def __init__(self, stack: CrashStack) -> None:
        super().__init__("node", stack.home.path / "node", stack.home.path / "run" / "node.sock")
        self._stack = stack

    @property
    def pid(self) -> int | None:
        return self._stack.pid_of("node")


class OtherNode(House):
    """A node beside the one of the stack. Nobody starts it again but `kept`. Made by `other_node`."""

    def __init__(self, stack: CrashStack, path: Path, **environment: str) -> None:
        super().__init__("other node", path, path.parent / f"{path.name}.sock")
        given = {"OUTLIVE_NODE__PATH": str(path), "OUTLIVE_NODE__ADDRESS": f"unix:{self.socket}"}
        self._environment = {**stack.home.environment, **given, **environment}
        self._starts = 0
        stack.node_paths.append(path)
        self.start()

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process.poll() is None else None

    @property
    def is_well(self) -> bool:
        return self.pid is not None and b'"serving"' in self._log.read_bytes()

    def start(self) -> None:
        self._starts += 1
        self._log = self.path.parent / f"{self.path.name}-{self._starts}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*COMMAND, "node"], env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, it is started again whenever it dies, as a supervisor does."""
        is_over = threading.Event()

        def keep() -> None:
            while not is_over.wait(0.1):
                if self.process.poll() is not None:
                    self.start()

        keeper = threading.Thread(target=keep, name="keeper of the other node")
        keeper.start()
        try:
            yield
        finally:
            is_over.set()
            keeper.join()

    def down(self) -> None:
        """Stop it as a user does: nothing of it may be left on the host."""
        self.process.terminate()
        assert self.process.wait(30) == 0, self._log.read_text()[-2000:]
        assert_nothing_left(self.path, cgroup_name(self.path), are_asleep=True)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(30)
        sandboxes = open_gvisor_sandboxes(self.path, cgroup_name(self.path))

        async def end_all() -> None:
            for sandbox in await sandboxes.find_all():
                await sandboxes.destroy(sandbox)

        anyio.run(end_all)
        assert_nothing_left(self.path, cgroup_name(self.path), are_asleep=True)


@contextmanager
def other_node(stack: CrashStack, path: Path, **environment: str) -> Iterator[OtherNode]:
    """Nothing of it is left afterwards, whatever happens."""
    node = OtherNode(stack, path, **environment)
    try:
        eventually_sync(lambda: node.is_well, START_WITHIN_S)
        yield node
    finally:
        node.end()
