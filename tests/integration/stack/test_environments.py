"""An environment is built by the real stack, also when the worker is killed in the middle of it; its machines wait."""

import sqlite3
import urllib.request
from contextlib import closing

import pytest

from eventually import eventually_sync
from integration.stack.homes import Home

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
def test_a_build_outlives_its_worker_and_its_machines_wait_with_their_services_running(home: Home) -> None:
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
    with closing(sqlite3.connect(f"file:{home.path / 'outlive.db'}?mode=ro", uri=True)) as database:
        [count] = database.execute("SELECT COUNT(*) FROM machines WHERE is_warm AND state = 'running'").fetchone()
        return int(count)
