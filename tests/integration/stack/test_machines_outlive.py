"""The promise of the house: everything is killed, and the machine comes back as it was, under the same ids."""

import json
import shlex
import signal
from typing import Any

import pytest

from eventually import eventually_sync
from integration.stack.homes import Home
from leaks import assert_nothing_left
from outlive.processes.proc import is_alive, send
from outlive.wiring.node import cgroup_name

_ASK_OUTSIDE = """
import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://a.example/", timeout=20)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture
def home(home: Home) -> Home:
    home.environment["OUTLIVE_MACHINES__ENABLED"] = "on"
    return home


def _exec(home: Home, machine: str, command: str, **fields: object) -> Any:
    return home.post(f"/v1/machines/{machine}/exec", {"command": command, **fields})


_FETCH = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/greeting').read().decode())\""
# A shell that stays, with a variable that is nowhere but in its memory; it answers over two named pipes.
_SHELL = (
    'mkfifo ask answer; nohup bash -c \'kept=only-here; exec 3<>ask; while read -r -u 3 line; do eval "$line" > answer;'
    " done' >/dev/null 2>&1 &"
)


@pytest.mark.timeout(240)
def test_a_hibernated_machine_survives_the_death_of_everything(home: Home) -> None:
    home.up()
    machine = home.post("/v1/machines")  # with nothing said: what a fresh stack gives
    assert machine["environment"] == "default"
    _exec(home, machine["id"], f"echo hello > greeting; nohup python3 -m http.server 8123 >/dev/null 2>&1 & {_SHELL}")
    assert _exec(home, machine["id"], "echo 'echo $kept' > ask; cat answer")["stdout"] == "only-here\n"
    assert home.post(f"/v1/machines/{machine['id']}/hibernate")["state"] == "hibernated"

    processes = home.processes()
    for process in processes:
        send(process, signal.SIGKILL)
    eventually_sync(lambda: not any(is_alive(process) for process in processes))

    home.up()
    woken = home.post(f"/v1/machines/{machine['id']}/wake")
    assert (woken["id"], woken["state"]) == (machine["id"], "running")
    assert _exec(home, machine["id"], _FETCH)["stdout"] == "hello\n\n"
    assert _exec(home, machine["id"], "echo 'echo $kept' > ask; cat answer")["stdout"] == "only-here\n"
    home.call("DELETE", f"/v1/machines/{machine['id']}")
    home.run("down")
    assert_nothing_left(home.path / "node", cgroup_name(home.path / "node"))
    assert not [path for path in (home.path / "run").iterdir() if path.is_socket()]


@pytest.mark.timeout(240)
def test_down_hibernates_what_runs_and_up_finds_it_asleep(home: Home) -> None:
    home.up()
    machine = home.post("/v1/machines", {"environment": "host"})
    _exec(home, machine["id"], "echo memory > /tmp/file")
    down = home.run("down")
    assert (down.returncode, f"{machine['id']} is hibernated" in down.stderr) == (0, True)
    assert_nothing_left(home.path / "node", cgroup_name(home.path / "node"))
    home.up()
    assert home.get(f"/v1/machines/{machine['id']}")["state"] == "hibernated"
    done = _exec(home, machine["id"], "cat /tmp/file")  # wakes it
    assert done["stdout"] == "memory\n", json.dumps(done)


@pytest.mark.timeout(240)
def test_sandboxes_live_through_the_death_of_the_whole_stack_and_are_adopted(home: Home) -> None:
    home.up()
    machine = home.post("/v1/machines", {"environment": "host"})
    _exec(home, machine["id"], "echo memory > /tmp/file")
    processes = home.processes()
    for process in processes:
        send(process, signal.SIGKILL)
    eventually_sync(lambda: not any(is_alive(process) for process in processes))
    home.up()
    found = home.get(f"/v1/machines/{machine['id']}")
    assert (found["state"], found["generation"]) == ("running", machine["generation"])
    assert _exec(home, machine["id"], "cat /tmp/file")["stdout"] == "memory\n"


@pytest.mark.timeout(240)
def test_what_a_machine_asked_for_outside_is_read_by_people(home: Home) -> None:
    home.up()
    machine = home.post("/v1/machines", {"environment": "host"})
    asked = _exec(home, machine["id"], f"python3 -c {shlex.quote(_ASK_OUTSIDE)}")
    assert asked["stdout"] == "403\n", json.dumps(asked)
    place = f"/v1/machines/{machine['id']}/egress"
    eventually_sync(lambda: len(home.get(place)["items"]) == 1)
    [told] = home.get(place)["items"]
    assert (told["verdict"], told["reason"], told["host"], told["port"]) == ("denied", "not_listed", "a.example", 80)
    shown = home.run("machine", "egress", machine["id"]).stdout
    assert "a.example:80" in shown
