"""The end of a host's machines when its stack is dead, and what the doctor says of a host with machines."""

import json
import signal
from typing import Any

import pytest

from eventually import eventually_sync
from integration.stack.homes import Home
from leaks import assert_nothing_left
from outlive.processes.proc import is_alive, send
from outlive.wiring.node import cgroup_name


@pytest.fixture
def home(home: Home) -> Home:
    home.environment["OUTLIVE_MACHINES__ENABLED"] = "on"
    return home


def _kill_all(home: Home) -> None:
    processes = home.processes()
    for process in processes:
        send(process, signal.SIGKILL)
    eventually_sync(lambda: not any(is_alive(process) for process in processes))


def _make(home: Home) -> Any:
    machine = home.post("/v1/machines", {"environment": "host"})
    home.post(f"/v1/machines/{machine['id']}/exec", {"command": "echo memory > /tmp/file"})
    return machine["id"]


def _levels(home: Home) -> dict[str, str]:
    document = json.loads(home.run("doctor", "--json").stdout)
    return {each["name"]: each["level"] for each in document["findings"]}


@pytest.mark.timeout(240)
def test_down_hibernates_what_a_dead_stack_left_and_the_doctor_sees_the_node_live(home: Home) -> None:
    home.up()
    levels = _levels(home)
    assert {levels[name] for name in ("root", "kernel", "cgroups", "programs", "runtime", "sandbox", "node")} == {"ok"}
    assert not (home.path / "trial").exists()
    machine, paused = _make(home), _make(home)
    home.post(f"/v1/machines/{paused}/exec", {"command": "echo kept > file"})
    home.post(f"/v1/machines/{paused}/pause")
    home.post("/v1/environments", {"name": "pooled", "base": "host", "warm": 1})
    pooled = "SELECT id FROM machines WHERE is_warm AND state = 'running'"
    eventually_sync(lambda: len(home.query(pooled)) == 1, within_s=60)
    [(warm,)] = home.query(pooled)

    _kill_all(home)
    down = home.run("down")
    assert down.returncode == 0
    assert "hibernating 3 machines left on this host" in down.stderr
    assert f"{machine} still ran" in down.stderr
    assert f"{warm} waited in a warm pool" in down.stderr
    assert f"{paused} was paused by a person: its files are saved, its memory is not" in down.stderr
    assert_nothing_left(home.path / "node", cgroup_name(home.path / "node"))
    drained = home.run("node", "--drain", "--json")
    assert (drained.returncode, json.loads(drained.stdout)) == (0, {"stuck": []})
    assert home.query("SELECT id FROM nodes") == [], "a host without machines was taken out of service"

    home.up()
    assert home.get(f"/v1/machines/{machine}")["state"] == "hibernated"
    done = home.post(f"/v1/machines/{machine}/exec", {"command": "cat /tmp/file"})  # wakes it
    assert done["stdout"] == "memory\n"
    assert home.get(f"/v1/machines/{paused}")["state"] == "hibernated"
    home.post(f"/v1/machines/{paused}/resume")
    done = home.post(f"/v1/machines/{paused}/exec", {"command": "cat file; ls /tmp"})
    assert done["stdout"] == "kept\n"


def test_a_second_node_in_a_home_is_refused_and_takes_nothing_from_the_first(home: Home) -> None:
    home.up()
    refused = home.run("node")
    assert refused.returncode == 1
    assert "Another node runs" in refused.stderr
    machine = _make(home)
    done = home.post(f"/v1/machines/{machine}/exec", {"command": "cat /tmp/file"})
    assert done["stdout"] == "memory\n"


def test_every_fault_that_the_doctor_finds_comes_with_its_remedy(home: Home) -> None:
    home.path.mkdir(mode=0o700, exist_ok=True)
    doctor = home.run("doctor", "--json", OUTLIVE_MACHINES__RUNSC="no-such-runsc")
    assert doctor.returncode == 1
    findings = {each["name"]: each for each in json.loads(doctor.stdout)["findings"]}
    assert findings["runsc"]["level"] == "fail"
    assert "gVisor's own releases" in findings["runsc"]["mend"]
    assert "sandbox" not in findings, "nothing is tried where it cannot work"
    assert all(each["mend"] for each in findings.values() if each["level"] != "ok" and each["name"] != "machines")
