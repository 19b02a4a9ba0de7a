"""A stack with a second node beside its own, each with room for one machine: a machine is placed where there is room,
and a node that is full is not even asked. What waits for room is told after a while that there is none."""

import subprocess
import threading
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home
from leaks import assert_nothing_left
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.wiring.node import cgroup_name

pytestmark = pytest.mark.timeout(240)

_REFUSED = "has no room for machine"  # said by a node that was given what it has no room for
_ROOM_WITHIN_S = 30.0


@contextmanager
def node_beside(home: Home, path: Path) -> Iterator[Path]:
    """Its log."""
    address = f"unix:{path.parent / 'beside.sock'}"
    log = path.parent / "beside.log"
    environment = {**home.environment, "OUTLIVE_NODE__PATH": str(path), "OUTLIVE_NODE__ADDRESS": address}
    with (
        log.open("wb") as said,
        subprocess.Popen([*COMMAND, "node"], env=environment, stdout=said, stderr=said) as node,
    ):
        try:
            eventually_sync(lambda: '"serving"' in log.read_text(), 60.0)
            yield log
        finally:
            node.terminate()
            code = node.wait(30)
            end_sandboxes(path)
        assert code == 0, "also a node that is full ends in order"


def end_sandboxes(path: Path) -> None:
    sandboxes = open_gvisor_sandboxes(path, cgroup_name(path))

    async def end_all() -> None:
        for sandbox in await sandboxes.find_all():
            await sandboxes.destroy(sandbox)

    anyio.run(end_all)
    assert_nothing_left(path, cgroup_name(path))


def create(home: Home) -> Any:
    """The machine; or why there is none."""
    try:
        return home.post("/v1/machines", {"environment": "host"})
    except urllib.error.HTTPError as error:
        return "".join(error.__notes__)


class Creating(threading.Thread):
    """A machine that waits for room."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self.home = home
        self.made: Any = None
        self.start()

    def run(self) -> None:
        self.made = create(self.home)

    def end(self) -> Any:
        self.join(60)
        assert not self.is_alive()
        return self.made


def test_a_machine_is_placed_where_there_is_room_and_waits_for_it_where_there_is_none(
    home: Home, tmp_path: Path
) -> None:
    home.environment |= {"OUTLIVE_MACHINES__ENABLED": "on", "OUTLIVE_MACHINES__LIMIT": "1"}
    home.up()
    own_log = home.path / "logs" / "node.log"
    with node_beside(home, tmp_path / "beside") as log:
        first, second = create(home), create(home)
        assert {each["state"] for each in (first, second)} == {"running"}
        assert first["node"] != second["node"]

        waiting = Creating(home)
        eventually_sync(lambda: len(home.get("/v1/machines")["items"]) == 3)
        home.call("DELETE", f"/v1/machines/{first['id']}")
        third = waiting.end()
        assert (third["state"], third["node"]) == ("running", first["node"])
        assert _REFUSED not in own_log.read_text() + log.read_text(), "a node that is full was asked"

        begun_at = time.monotonic()
        told = create(home)
        assert "No node has room for it" in told
        assert time.monotonic() - begun_at >= _ROOM_WITHIN_S
        assert home.post(f"/v1/machines/{second['id']}/exec", {"command": "echo on"})["stdout"] == "on\n"
