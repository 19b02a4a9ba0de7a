"""An environment is built by the real stack, also when the worker is killed in the middle of it; its machines wait."""

import json
import urllib.request
from pathlib import Path

import pytest

from eventually import eventually_sync
from integration.stack.homes import Home
from outlive import Client
from outlive.base import CrashPoint

_LIMITS = {"memory_mib": 512, "disk_mib": 256}
_WEB = {
    "name": "web",
    "base": "host",
    "install": [
        "mkdir -p /opt/web && echo once >> /opt/web/index.html",
        "for tick in $(seq 15); do echo tick $tick; sleep 0.2; done",
    ],
    "start": ["exec python3 -m http.server 8000 --directory /opt/web"],
    "ports": [8000],
    "limits": _LIMITS,
    "warm": 1,
}
_FETCH = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/').read().decode())\""


@pytest.fixture
def home(home: Home) -> Home:
    home.environment["OUTLIVE_MACHINES__ENABLED"] = "on"
    return home


def _state(home: Home) -> str:
    found = home.get("/v1/environments/web")
    assert found["state"] != "failed", found["reason"]
    return str(found["state"])


@pytest.mark.timeout(240)
def test_a_build_outlives_its_worker_and_its_machines_wait_with_their_services_running(
    home: Home, tmp_path: Path
) -> None:
    home.up()
    assert home.post("/v1/environments", _WEB)["state"] == "building"
    eventually_sync(lambda: _said(home).count("tick") >= 2, within_s=30)
    home.kill(home.pid_of("worker"))
    eventually_sync(lambda: _state(home) == "ready", within_s=60)
    said = _said(home)
    assert said.count("$ mkdir") == 1
    assert [line for line in said.splitlines() if line.startswith("tick")] == [f"tick {n}" for n in range(1, 16)]

    web = home.get("/v1/environments/web")
    eventually_sync(lambda: _waiting(home) == 1, within_s=60)
    machine = home.post("/v1/machines", {"environment": "web"})
    assert (machine["state"], machine["environment"], machine["origin"]) == ("running", "web", web["checkpoint"])
    events = home.get(f"/v1/machines/{machine['id']}/events")["items"]
    assert [event["kind"] for event in events] == ["created", "booted"]
    assert events[0]["data"]["environment"] == web["digest"]  # made for the pool, not for us
    fetched = home.post(f"/v1/machines/{machine['id']}/exec", {"command": _FETCH})
    assert fetched["stdout"] == "once\n\n", fetched["stderr"]

    check_the_command(home, tmp_path)


def check_the_command(home: Home, folder: Path) -> None:
    """`outlive environment build` shows what the build says, and how it ended."""
    file = folder / "broken.toml"
    file.write_text('name = "broken"\nbase = "host"\ninstall = ["echo first", "echo no luck; exit 7"]\n')
    built = home.run("environment", "build", str(file))
    assert built.returncode == 1
    assert "$ echo first\nfirst\n" in built.stderr
    assert "error: broken could not be built" in built.stderr
    assert "exit code 7" in built.stderr
    file.write_text('name = "broken"\nbase = "host"\nwarm = 0\n')
    assert home.run("environment", "build", str(file)).stdout == "ready: broken\n"
    listed = home.run("environments").stdout.splitlines()
    assert [line.split() for line in listed[1:]] == [
        ["broken", "ready", "0", "host"],
        ["debian", "ready", "0", "debian"],
        ["default", "ready", "0", "debian"],
        ["host", "ready", "0", "host"],
        ["web", "ready", "1", "host"],
    ]
    assert "tick 15" in home.run("environment", "log", "web").stdout
    assert json.loads(home.run("environment", "show", "web", "--json").stdout)["state"] == "ready"
    assert home.run("environment", "show", "nothing").returncode == 3
    assert home.run("environment", "build", str(folder / "missing.toml")).returncode == 2


@pytest.mark.timeout(240)
def test_an_api_that_dies_between_a_claim_and_its_answer_gives_out_one_machine(home: Home) -> None:
    # The second POST of an API that gets so far kills it: the machine is claimed, and nobody was told.
    home.up(OUTLIVE_CRASH_AT=f"{CrashPoint.API_BEFORE_RECORD}:2")
    home.post("/v1/environments", {"name": "pooled", "base": "host", "limits": _LIMITS, "warm": 2})
    eventually_sync(lambda: _waiting(home) == 2, within_s=60)
    before = home.api_pid()
    with Client(home.endpoint["url"], home.endpoint["token"], patience_s=60) as client:
        machine = client.machines.create(environment="pooled", name="mine")
    assert home.api_pid() != before
    given_out = home.query("SELECT id FROM machines WHERE NOT is_warm")
    assert given_out == [(machine.id,)]
    assert home.query("SELECT id FROM machines WHERE claimed_by IS NOT NULL") == given_out
    assert machine.name == "mine"


def _said(home: Home) -> str:
    if not home.get("/v1/environments/web")["has_log"]:
        return ""
    endpoint = home.endpoint
    request = urllib.request.Request(
        endpoint["url"] + "/v1/environments/web/log", headers={"Authorization": f"Bearer {endpoint['token']}"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        said: str = answer.read().decode()
        return said


def _waiting(home: Home) -> int:
    return len(home.query("SELECT id FROM machines WHERE is_warm AND state = 'running'"))
