"""Without machines the demo shows a client that is cut off and resumes, ends with 0, and leaves nothing running. (What
it shows with machines is in `integration/stack/test_demo.py`.)"""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home

WITHIN_S = 200.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    home.stop()


def pids_of(home: Home) -> dict[int, str]:
    """The command lines of all processes that have this home in their environment."""
    mark = f"OUTLIVE_HOME={home.path}".encode()
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # gone meanwhile, or not ours
    return found


def processes_of(home: Home) -> list[str]:
    return [*pids_of(home).values()]


def run_demo(home: Home, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, "demo", *arguments],
        env={**home.environment, **environment},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def test_the_demo_shows_the_resume_ends_with_zero_and_leaves_no_process(home: Home) -> None:
    with socket.socket() as taken:  # the port that it would like to have
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run_demo(home, "--exit", OUTLIVE_API__PORT=str(port))
    assert result.returncode == 0, result.stdout + result.stderr
    shown = result.stdout
    assert f":{port}" not in shown
    cut = re.search(r"Client B was CUT OFF .* Its position: (\S+)", shown)
    assert cut is not None
    resumed = shown.index(f"RESUMES after {cut[1]}")
    assert cut.start() < shown.index("The worker was KILLED") < shown.index("REWOUND") < resumed
    assert "B | REWOUND" in shown[resumed:]
    assert "B | [" in shown[resumed:]
    assert "A, B and the server: identical" in shown
    assert "Machines cannot run here: the setting machines.enabled is off" in shown
    assert "built-in demo model" in shown
    # Of what B had seen before it was cut off, nothing was shown to it again.
    of_b = [line for line in shown.splitlines() if line.startswith("  B | [")]
    assert len(of_b) == len(set(of_b))
    assert result.stderr == ""
    eventually_sync(lambda: processes_of(home) == [], WITHIN_S)


def test_the_demo_uses_a_stack_that_runs_and_leaves_its_worker_alone(home: Home) -> None:
    url = home.up()["url"]
    worker = home.pid_of("worker")
    result = run_demo(home, "--json")  # without --exit: it has nothing of its own to keep serving
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["is_identical"], told["rewinds"], told["url"]) == (True, 0, url)
    assert told["cut_off_at"] != told["position"]
    assert home.pid_of("worker") == worker  # it may be at work for others
    assert home.is_ready()


def test_the_demo_serves_on_until_ctrl_c(home: Home) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo"], env=home.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Serving. Ctrl-C stops." in line:
                break
        assert home.is_ready()
        assert home.titles() == ["Demo: a client is cut off and resumes"]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, errors) == (0, "")
    assert "The stack is stopped." in rest
    assert processes_of(home) == []


@pytest.mark.parametrize(
    ("moment", "number"),
    [("Outlive starts", signal.SIGTERM), ("live: Nothing.", signal.SIGHUP), ("worker was KILLED", signal.SIGINT)],
)
def test_an_end_at_any_time_cleans_up_all_that_was_started(home: Home, moment: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo"], env=home.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if moment in line:
                break
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130
    assert "Traceback" not in errors
    eventually_sync(lambda: processes_of(home) == [], WITHIN_S)
