"""A stack that runs: what others see of it, and that looking changes nothing."""

import json
import os
import re
import socket
import stat

import pytest

from integration.stack.homes import Home
from outlive.processes.proc import find

pytestmark = pytest.mark.xdist_group("stack-running")


def test_it_is_ready_and_its_endpoint_is_private_and_has_no_path(running: Home) -> None:
    assert running.is_ready()
    path = running.path / "endpoint.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(running.endpoint) == {"url", "token"}
    assert running.endpoint["url"].startswith("http://127.0.0.1:")
    assert running.endpoint["url"].count("/") == 2


def test_nothing_under_home_is_open_to_others(running: Home) -> None:
    found = [running.path, *running.path.rglob("*")]
    assert [str(path) for path in found if stat.S_IMODE(path.lstat().st_mode) & 0o077] == []


def test_a_second_detached_up_is_done_and_changes_nothing(running: Home) -> None:
    before = running.record
    again = running.up()
    assert again == {"url": running.endpoint["url"], "pid": before["pid"], "already_running": True}
    assert running.record == before


def test_a_second_up_in_the_foreground_says_where_the_first_is(running: Home) -> None:
    result = running.run("up")
    assert result.returncode == 1
    assert "already running" in result.stderr
    assert running.endpoint["url"] in result.stderr
    assert running.is_ready()


def test_detached_processes_hold_no_descriptor_of_the_caller(running: Home) -> None:
    # `run` has read stdout and stderr of `up` to their end while the stack runs on; here is what is left open.
    children = {child["name"]: child["pid"] for child in running.record["children"]}
    for name, pid in {"up": running.record["pid"], **children}.items():
        targets = {os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)}
        assert targets == {"/dev/null", str(running.path / "logs" / f"{name}.log")}
        assert os.getsid(pid) != os.getsid(0)


def test_status_tells_of_each_process_and_exits_with_0(running: Home) -> None:
    result = running.run("status", "--json")
    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert (document["running"], document["healthy"]) == (True, True)
    assert document["url"] == running.endpoint["url"]
    assert document["counts"]["followers"] == 0
    assert [each["name"] for each in document["processes"]] == ["supervisor", "temporal", "api", "worker"]
    assert document["machines"] == {"on": False, "why_not": "the setting machines.enabled is off"}
    for each in document["processes"]:
        assert find(each["pid"]) is not None
        assert each["alive"]
        assert each["uptime_s"] > 0
        assert each["restarts"] == 0
    text = running.run("status")
    assert text.returncode == 0
    assert running.endpoint["url"] in text.stdout
    assert "machines are off: the setting machines.enabled is off" in text.stdout


def test_doctor_finds_every_part_well(running: Home) -> None:
    result = running.run("doctor", "--json")
    document = json.loads(result.stdout)
    assert result.returncode == 0, document
    assert {each["name"]: each["level"] for each in document["findings"]} == dict.fromkeys(
        "python sqlite settings home disk endpoint port api database feed objects temporal machines".split(), "ok"
    )
    [temporal] = [each["detail"] for each in document["findings"] if each["name"] == "temporal"]
    assert re.search(r"127\.0\.0\.1:\d+ answers; a workflow and its activity took \d+ ms", temporal)


def test_the_token_is_in_no_log_and_no_output(running: Home) -> None:
    shown = running.run("status", "--json").stdout + running.run("doctor").stdout
    shown += "".join(path.read_text() for path in (running.path / "logs").iterdir())
    assert running.endpoint["token"] not in shown


def test_the_log_of_the_api_is_json_lines(running: Home) -> None:
    lines = [json.loads(line) for line in (running.path / "logs" / "api.log").read_text().splitlines()]
    assert any(line["message"] == "serving" and line["url"] == running.endpoint["url"] for line in lines)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GARBAGE / HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"POST /v1/conversations HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n",
    ],
)
def test_bytes_that_are_no_http_get_a_problem_too(running: Home, garbage: bytes) -> None:
    port = int(running.endpoint["url"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(garbage)
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"content-type: application/problem+json" in head
    assert (json.loads(body)["kind"], json.loads(body)["code"]) == ("invalid", "request.unreadable")
    assert running.is_ready()
