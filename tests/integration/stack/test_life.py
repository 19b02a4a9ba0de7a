"""A stack from its first start to its last: stopped, killed in parts, started again, always on the same data."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home, stand_still
from outlive.processes.proc import is_alive


def _is_refused(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as client:
        return client.connect_ex((address.hostname, address.port)) != 0


def test_down_leaves_nothing_and_up_goes_on_with_the_same_data_and_token(home: Home) -> None:
    first = home.up()
    processes, endpoint = home.processes(), home.endpoint
    home.create("before")

    result = home.run("down", "--json")
    assert result.returncode == 0
    assert sorted(json.loads(result.stdout)["ended"]) == sorted(process.pid for process in processes)
    assert [process for process in processes if is_alive(process)] == []
    assert _is_refused(first["url"])
    assert sorted(path.name for path in (home.path / "run").iterdir()) == ["endpoint.lock", "supervisor.lock"]

    again = home.run("down")
    assert (again.returncode, again.stdout) == (0, "Outlive was not running.\n")
    status = home.run("status", "--json")
    assert status.returncode == 5
    assert json.loads(status.stdout)["running"] is False

    home.up("--port", str(urlsplit(first["url"]).port))
    assert home.endpoint == endpoint
    assert home.titles() == ["before"]


def test_a_killed_api_is_started_again_on_the_same_port_with_its_data(home: Home) -> None:
    home.up()
    endpoint, pid = home.endpoint, home.api_pid()
    home.create("before")
    home.kill(pid)
    # Whoever connects meanwhile waits: the supervisor holds the port.
    assert home.titles() == ["before"]
    assert home.endpoint == endpoint
    eventually_sync(lambda: home.api_pid() != pid, 60.0)
    assert {child["name"]: child["restarts"] for child in home.record["children"]} == {
        "temporal": 0,
        "api": 1,
        "worker": 0,
    }
    assert "killed by SIGKILL" in (home.path / "logs" / "up.log").read_text()


def test_a_killed_supervisor_leaves_nothing_behind_and_up_works_again(home: Home) -> None:
    home.up()
    processes = home.processes()
    home.create("before")
    home.kill(home.record["pid"])
    eventually_sync(lambda: not any(is_alive(process) for process in processes), 60.0)
    assert home.run("status").returncode == 5
    home.up()
    assert home.titles() == ["before"]


def test_down_ends_an_orphan_that_does_not_end_by_itself(home: Home) -> None:
    url = home.up()["url"]
    [supervisor, *children] = home.processes()
    [api] = [process for process in children if process.pid == home.api_pid()]
    stand_still(api.pid)  # it cannot end by itself
    home.kill(supervisor.pid)
    eventually_sync(lambda: [process for process in children if is_alive(process)] == [api], 60.0)
    assert home.stop(grace_s=0.2) == [api.pid]
    assert not is_alive(api)
    assert _is_refused(url)
    assert not (home.path / "run" / "supervisor.json").exists()


def test_two_homes_run_side_by_side(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    try:
        home.up()
        other.up()
        home.create("mine")
        other.create("theirs")
        assert (home.titles(), other.titles()) == (["mine"], ["theirs"])
        assert home.endpoint["token"] != other.endpoint["token"]
        assert home.endpoint["url"] != other.endpoint["url"]
        home.stop()
        assert other.is_ready()
    finally:
        other.stop()


def test_up_holds_no_other_descriptor_of_the_caller(home: Home) -> None:
    read_fd, write_fd = os.pipe()
    try:
        os.set_inheritable(write_fd, True)
        result = subprocess.run(
            [*COMMAND, "up", "--detach"], env=home.environment, close_fds=False, capture_output=True, check=True
        )
    finally:
        os.close(write_fd)
    with open(read_fd, "rb") as pipe:
        os.set_blocking(read_fd, False)
        assert pipe.read() == b""  # the end: nobody has the other side (None would mean that somebody has)
    assert b"ready at http://127.0.0.1:" in result.stdout
    assert home.is_ready()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_in_the_foreground_ends_everything_cleanly(home: Home, number: signal.Signals) -> None:
    with home.start("up") as up:
        assert up.stdout is not None
        for line in up.stdout:
            if "ready at" in line:
                break
        assert "Ctrl-C" in line
        processes = home.processes()
        up.send_signal(number)
        rest = up.stdout.read()
        assert up.wait(20) == 0
    assert number.name in rest
    assert rest.endswith("outlive: stopped\n")
    assert [process for process in processes if is_alive(process)] == []
    assert not (home.path / "run" / "supervisor.json").exists()
    assert not (home.path / "run" / "feed.sock").exists()


def test_a_detached_up_that_is_killed_before_it_was_told_leaves_nothing_running(home: Home) -> None:
    with home.start("up", "--detach") as process:
        record = home.path / "run" / "supervisor.json"
        eventually_sync(lambda: record.exists() and bool(home.record["children"]), within_s=30)
        started = home.processes()
        process.kill()
        process.wait()
    eventually_sync(lambda: not any(is_alive(each) for each in started), within_s=30)
    assert home.run("status").returncode == 5
