"""The embedded Temporal server and the worker: killed, moved aside, refused, or a cluster instead. No work is lost."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from temporalio.client import Client, WorkflowHandle

from eventually import eventually_sync
from integration.stack.homes import Home, stand_still
from outlive.machine.queues import MACHINES
from outlive.processes.machines import look_for_machines
from outlive.processes.proc import is_alive
from outlive.wiring.ping import Ping, ping, pong
from outlive.wiring.settings import read_settings
from outlive.wiring.temporal import connect_temporal, read_temporal_address
from outlive.wiring.temporal_worker import make_worker, run_until_shut, shut

T = TypeVar("T")
WITHIN_S = 30.0


def _address(home: Home) -> str:
    address = read_temporal_address(read_settings({"home": home.path}))
    assert address is not None
    return address


def _with_client(home: Home, use: Callable[[Client], Awaitable[T]]) -> T:
    async def run() -> T:
        with anyio.fail_after(WITHIN_S):
            return await use(await connect_temporal(read_settings({"home": home.path}), WITHIN_S))

    return anyio.run(run)


async def _start(client: Client, word: str, queue: str) -> WorkflowHandle[Ping, str]:
    """Start a workflow. A task of it that a dead worker has is given to another one after a second."""
    return await client.start_workflow(
        Ping.run, word, id=f"test-{word}", task_queue=queue, task_timeout=timedelta(seconds=1)
    )


async def _result(client: Client, word: str) -> str:
    return await client.get_workflow_handle_for(Ping.run, f"test-{word}").result()


@asynccontextmanager
async def _working(client: Client, home: Home, queue: str) -> AsyncIterator[None]:
    worker = make_worker(client, queue, read_settings({"home": home.path}), workflows=[Ping], activities=[pong])
    async with anyio.create_task_group() as group:
        group.start_soon(run_until_shut, worker)
        try:
            yield
        finally:
            await shut(worker, 1.0)


def _restarts(home: Home, name: str) -> int:
    return int(home.child(name)["restarts"])


def _said(home: Home, text: str) -> int:
    return (home.path / "logs" / "up.log").read_text().count(text)


def test_a_killed_temporal_comes_back_on_its_port_with_its_data_and_work_begun_before_is_finished(home: Home) -> None:
    secret = "t" * 40
    home.up(OUTLIVE_API__TOKEN=secret)
    pid, address = home.pid_of("temporal"), _address(home)
    assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()

    async def begin(client: Client) -> None:
        await _start(client, "before", "later")  # nobody works on that queue yet

    _with_client(home, begin)
    stand_still(pid)
    assert home.is_ready()  # reading needs no Temporal
    home.kill(pid)
    eventually_sync(lambda: _restarts(home, "temporal") == 1 and _said(home, "ready at") == 2, WITHIN_S)
    assert _address(home) == address
    assert _restarts(home, "worker") == 0

    async def finish(client: Client) -> str:
        assert await ping(client, WITHIN_S) > 0  # the worker of the stack has found it again
        async with _working(client, home, "later"):
            return await _result(client, "before")

    assert _with_client(home, finish) == "before"


def test_a_killed_worker_is_started_again_and_what_it_was_doing_is_finished(home: Home) -> None:
    home.up()
    pid = home.pid_of("worker")
    stand_still(pid)  # so that it does not finish before it is killed

    async def begin(client: Client) -> None:
        await _start(client, "held", MACHINES)

    _with_client(home, begin)
    home.kill(pid)
    assert _with_client(home, lambda client: _result(client, "held")) == "held"
    assert home.pid_of("worker") != pid
    assert {child["name"]: child["restarts"] for child in home.record["children"]} == {
        "temporal": 0,
        "api": 0,
        "worker": 1,
    }


def test_a_database_of_another_version_is_moved_aside_and_said(home: Home) -> None:
    home.up()
    home.stop()
    mark = home.path / "temporal" / "server.json"
    found = json.loads(mark.read_text())
    assert found["whole"] is True
    mark.write_text(json.dumps({**found, "version": "0.0.1"}))
    home.up()
    assert _said(home, "was made by version 0.0.1, and this is") == 1
    assert (home.path / "temporal-0.0.1" / "server.db").stat().st_size > 0
    assert (home.path / "temporal" / "server.db").exists()
    assert _with_client(home, ping) > 0


def test_a_taken_port_of_temporal_is_named_and_nothing_is_started(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = home.run("up", OUTLIVE_TEMPORAL__PORT=str(port))
    assert result.returncode == 1
    assert f"Port {port} on 127.0.0.1, which is for Temporal, is taken" in result.stderr
    assert "started" not in result.stdout
    assert sorted(path.name for path in (home.path / "run").iterdir()) == ["supervisor.lock"]


@pytest.mark.timeout(300)
def test_with_a_cluster_no_server_is_started_and_reading_goes_on_when_it_is_away(home: Home, tmp_path: Path) -> None:
    home.up()
    other = Home(tmp_path / "other", OUTLIVE_TEMPORAL__ADDRESS=_address(home))
    try:
        other.up()
        assert [child["name"] for child in other.record["children"]] == ["api", "worker"]
        home.kill(home.record["pid"])  # and with it its worker, and the cluster
        away = other.run("doctor", "--json")
        assert [each["name"] for each in json.loads(away.stdout)["findings"] if each["level"] == "fail"] == ["temporal"]
        assert other.is_ready()
        lines = (other.path / "logs" / "worker.log").read_text().splitlines()
        assert [line for line in lines if not line.startswith("{")] == []  # what the SDK says is JSON too
    finally:
        other.stop()


def test_two_homes_have_a_temporal_each(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    try:
        home.up()
        other.up()
        assert _address(home) != _address(other)
        assert _with_client(home, ping) > 0
        home.stop()
        assert _with_client(other, ping) > 0
    finally:
        other.stop()


def test_a_stack_with_a_node_leaves_no_process_when_it_is_stopped_or_its_supervisor_killed(home: Home) -> None:
    home.environment["OUTLIVE_MACHINES__ENABLED"] = "auto"
    expected = ["temporal", "api", "worker"]
    if look_for_machines(read_settings({"home": home.path})).is_on:
        expected.append("node")
    for end in (lambda: home.kill(home.record["pid"]), home.stop):
        home.up()
        assert [child["name"] for child in home.record["children"]] == expected
        processes = home.processes()
        end()
        eventually_sync(lambda started=processes: not any(map(is_alive, started)), WITHIN_S)  # type: ignore[misc]
        eventually_sync(lambda: _processes_of(home) == [], WITHIN_S)


def _processes_of(home: Home) -> list[str]:
    """The command lines of all processes that have this home in their environment."""
    mark = f"OUTLIVE_HOME={home.path}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # gone meanwhile, or not ours
    return found


def test_machines_that_have_to_be_on_and_cannot_be_refuse_the_start(home: Home) -> None:
    result = home.run("up", OUTLIVE_MACHINES__ENABLED="on", OUTLIVE_MACHINES__RUNSC="no-such-runsc")
    assert result.returncode == 2
    assert "gVisor's 'no-such-runsc' is not installed" in result.stderr
    auto = home.run("doctor", "--json", OUTLIVE_MACHINES__ENABLED="auto", OUTLIVE_MACHINES__RUNSC="no-such-runsc")
    assert auto.returncode == 0
    home.up(OUTLIVE_MACHINES__ENABLED="auto", OUTLIVE_MACHINES__RUNSC="no-such-runsc")
    assert _said(home, "machines are off: gVisor's 'no-such-runsc' is not installed") == 1
    assert "'no-such-runsc' is not installed" in home.run("status").stdout


def test_the_server_does_not_start_without_a_supervisor(home: Home) -> None:
    read_fd, write_fd = os.pipe()
    os.close(write_fd)  # nobody holds the other end
    try:
        result = subprocess.run(
            [sys.executable, "-m", "outlive.processes.temporal_server", str(home.path), "1", str(read_fd)],
            pass_fds=(read_fd,),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    finally:
        os.close(read_fd)
    assert (result.returncode, result.stderr) == (1, "error: The supervisor is gone.\n")
    assert not home.path.exists()
