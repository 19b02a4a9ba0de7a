"""Starts and stops that meet each other, and an API that is started by hand beside a stack."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home, stand_still
from outlive.processes import proc
from outlive.processes.record import ChildRecord, StackRecord, read_record, write_record
from outlive.processes.stack import stop
from outlive.wiring.settings import Home as OutliveHome

# A supervisor that has the lock, and takes its time to say so in the record.
SLOW = """
import os, signal, sys
from pathlib import Path
from outlive.processes import proc
from outlive.processes.record import StackRecord, hold_lock, write_record
run_path = Path(sys.argv[1])
with hold_lock(run_path):
    print(flush=True)
    sys.stdin.readline()
    me = proc.find(os.getpid())
    write_record(run_path, StackRecord(me.pid, me.started, me.boot, None, None))
    signal.pause()
"""


def _sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "60"])


def _found(pid: int) -> proc.Process:
    found = proc.find(pid)
    assert found is not None
    return found


def test_a_detached_up_that_waits_for_a_stack_that_ends_starts_its_own(home: Home) -> None:
    (home.path / "run").mkdir(parents=True, mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as nobody, _sleeper() as ending:
        who = _found(ending.pid)
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        write_record(home.path / "run", StackRecord(who.pid, who.started, who.boot, url, None))
        with home.start("up", "--detach", "--json") as up:
            nobody.settimeout(30)
            nobody.accept()[0].close()  # it asks whether that one is ready: it waits for it
            ending.kill()
            ending.wait()
            nobody.close()
            assert up.stdout is not None
            told = json.loads(up.stdout.read())
            assert up.wait(30) == 0
    assert told["already_running"] is False
    assert home.is_ready()


def test_down_waits_for_a_start_that_has_the_lock_but_is_not_recorded_yet(home: Home) -> None:
    run_path = home.path / "run"
    run_path.mkdir(parents=True, mode=0o700)
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(run_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as slow:
        try:
            assert slow.stdout is not None
            assert slow.stdin is not None
            slow.stdout.readline()
            ended: list[int] = []
            down = threading.Thread(target=lambda: ended.extend(stop(OutliveHome(home.path), 5.0)))
            down.start()
            slow.stdin.write(b"\n")
            slow.stdin.flush()
            slow.wait(20)
            down.join(20)
        finally:
            slow.kill()
    assert ended == [slow.pid]
    assert slow.returncode == -signal.SIGTERM
    assert read_record(run_path) is None


def test_a_start_is_recorded_before_it_ends_what_the_last_run_left(home: Home) -> None:
    run_path = home.path / "run"
    run_path.mkdir(parents=True, mode=0o700)
    with _sleeper() as orphan:
        try:
            left = _found(orphan.pid)
            killed = StackRecord(left.pid, left.started - 1, left.boot, None, None)  # nobody is that
            write_record(run_path, replace(killed, children=(ChildRecord("api", left.pid, left.started, 0),)))
            stand_still(orphan.pid)  # it does not end before we let it
            with home.start("up") as up:
                eventually_sync(lambda: home.record["pid"] == up.pid, 30)
                assert home.record["url"] is None
                assert home.api_pid() == orphan.pid  # whoever comes next would have to end it
                os.kill(orphan.pid, signal.SIGCONT)
                assert orphan.wait(20) == -signal.SIGTERM
                eventually_sync(lambda: bool(home.record["url"]), 30)
                up.terminate()
                assert up.wait(30) == 0
        finally:
            orphan.kill()


def test_down_ends_no_child_of_a_newer_stack(home: Home) -> None:
    run_path = home.path / "run"
    run_path.mkdir(parents=True, mode=0o700)
    with _sleeper() as old, _sleeper() as new, _sleeper() as child:
        try:
            first, second, third = (_found(each.pid) for each in (old, new, child))
            newer = StackRecord(
                second.pid, second.started, second.boot, None, None, (ChildRecord("api", third.pid, third.started, 0),)
            )
            write_record(run_path, StackRecord(first.pid, first.started, first.boot, None, None))
            stand_still(old.pid)  # it hears the signal of `stop` only when we let it
            ended: list[int] = []
            down = threading.Thread(target=lambda: ended.extend(stop(OutliveHome(home.path), 5.0)))
            down.start()
            eventually_sync(lambda: _has_pending(old.pid, signal.SIGTERM))
            write_record(run_path, newer)
            os.kill(old.pid, signal.SIGCONT)
            down.join(20)
            assert ended == [old.pid]
            assert child.poll() is None
            assert read_record(run_path) == newer
        finally:
            for each in (old, new, child):
                each.kill()


def _has_pending(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask & (1 << (number - 1)) for mask in masks)


def test_an_api_beside_a_stack_leaves_its_address_and_the_doctor_names_a_wrong_one(home: Home, tmp_path: Path) -> None:
    home.up()
    endpoint = home.endpoint
    log = tmp_path / "guest.log"
    with (
        log.open("wb") as file,
        subprocess.Popen([*COMMAND, "api"], env=home.environment, stderr=file, stdin=subprocess.DEVNULL) as guest,
    ):
        try:
            eventually_sync(lambda: '"serving"' in log.read_text(), 30)
            told = [json.loads(line) for line in log.read_text().splitlines()]
            [url] = {line["url"] for line in told if line["message"] == "serving"}
            assert url != endpoint["url"]
            assert any("keeps its address" in line["message"] and line["url"] == url for line in told)
            assert home.endpoint == endpoint
            assert home.call("GET", "/v1/conversations", url=url)["items"] == []  # with the same token
        finally:
            guest.kill()
    (home.path / "endpoint.json").write_text(json.dumps({**endpoint, "url": url}))
    doctor = home.run("doctor", "--json")
    assert doctor.returncode == 1
    [finding] = [each for each in json.loads(doctor.stdout)["findings"] if each["level"] == "fail"]
    assert finding["name"] == "endpoint"
    assert url in finding["detail"]
    assert "outlive down" in finding["mend"]


def test_up_with_another_port_says_that_the_stack_stays_where_it_is(home: Home) -> None:
    url = home.up()["url"]
    port = urlsplit(url).port
    assert port is not None
    other = home.run("up", "--detach", "--port", str(port - 1))
    assert (other.returncode, f"not on port {port - 1}" in other.stderr) == (0, True)
    same = home.run("up", "--detach", "--port", str(port))
    assert (same.returncode, same.stderr) == (0, "")
