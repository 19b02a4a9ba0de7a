"""Machines that dial without end, on a node that may have few descriptors: the node and its other machines go on."""

import os
import shlex

import pytest

from eventually import eventually_sync
from integration.stack.homes import Home

# Holds as many connections to the way out as it gets, each in the middle of its request; where one ends it dials again.
_DIALLER = """
import select, socket, time
held, poll = {}, select.poll()
while True:
    while len(held) < 256:
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(1)
        try:
            one.connect("/run/outlive/egress.sock")
            one.sendall(b"GET http://x/ HTTP/1.1\\r\\nX: ")
        except OSError:
            one.close()
            break
        held[one.fileno()] = one
        poll.register(one, select.POLLIN)
    for number, _ in poll.poll(1000):
        poll.unregister(number)
        held.pop(number).close()
    time.sleep(0.1)
"""


@pytest.mark.timeout(240)
def test_machines_that_dial_without_end_leave_their_node_and_its_other_machines_what_they_need(home: Home) -> None:
    home.environment |= {"OUTLIVE_MACHINES__ENABLED": "on", "OUTLIVE_NODE__HEARTBEAT_S": "0.5"}
    home.up_within("ulimit -Sn 300 && ulimit -Hn 480")
    assert home.descriptor_limits("node") == ["480", "480"]
    node = home.pid_of("node")
    one, two, neighbour = (home.post("/v1/machines", {"environment": "host"})["id"] for _ in range(3))

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{node}/fd"))

    quiet = descriptors()
    for machine in (one, two):
        command = {"command": f"exec python3 -c {shlex.quote(_DIALLER)}", "background": True, "user": "root"}
        home.post(f"/v1/machines/{machine}/exec", command)
    # Each has two places of its own at least, and half of what is nobody's.
    eventually_sync(lambda: descriptors() > quiet + 30, within_s=30)
    words = set()

    def has_kept_its_lease() -> bool:
        words.add((home.path / "node" / "lease").read_text())
        done = home.post(f"/v1/machines/{neighbour}/exec", {"command": "echo well"})
        assert done["stdout"] == "well\n"
        return len(words) > 10

    eventually_sync(has_kept_its_lease, within_s=60)
    assert (home.pid_of("node"), home.is_ready()) == (node, True), "it is the same process"
    assert descriptors() < 480 - 100
