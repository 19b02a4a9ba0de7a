"""What a stack lives through: kills in a row, files that cannot be written, an address that is not the usual one."""

import json
import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home
from outlive.processes.proc import is_alive


def _is_said_more_often(log: Path, text: str, than: int) -> bool:
    return log.read_text().count(text) > than


def test_an_api_that_is_well_can_be_killed_again_and_again(home: Home) -> None:
    home.up(OUTLIVE_SUPERVISOR__MAX_DELAY_S="0.05", OUTLIVE_SUPERVISOR__WELL_AFTER_S="0")
    log = home.path / "logs" / "up.log"
    for _ in range(8):
        ready = log.read_text().count("ready at")
        home.kill(home.api_pid())
        eventually_sync(partial(_is_said_more_often, log, "ready at", ready), 60)
    assert home.is_ready()
    assert home.child("api")["restarts"] == 8


def test_logs_that_cannot_be_moved_aside_or_opened_end_nothing(home: Home) -> None:
    logs = home.path / "logs"
    (logs / "api.log.1").mkdir(parents=True, mode=0o700)
    (logs / "api.log").write_bytes(b"x" * 20_000)
    home.up(OUTLIVE_SUPERVISOR__LOG_BYTES="10000")
    assert (logs / "api.log").stat().st_size < 10_000  # cut, though there was nowhere to copy it to
    (logs / "api.log").unlink()
    (logs / "api.log").mkdir()
    pid = home.api_pid()
    home.kill(pid)
    eventually_sync(lambda: home.api_pid() != pid, 30)
    eventually_sync(home.is_ready, 30)


def test_a_record_that_cannot_be_written_is_written_when_it_can(home: Home) -> None:
    home.up()
    supervisor, api = (process for process in home.processes() if process.pid in (home.record["pid"], home.api_pid()))
    waiting = home.path / "run" / ".supervisor.json.new"
    waiting.mkdir()  # in the way of every new record
    home.kill(api.pid)
    eventually_sync(home.is_ready, 30)
    assert is_alive(supervisor)
    assert home.api_pid() == api.pid  # the old record still
    waiting.rmdir()
    eventually_sync(lambda: home.api_pid() != api.pid, 30)
    assert all(is_alive(process) for process in home.processes())


def test_a_supervisor_that_nobody_listens_to_goes_on_and_ends_with_zero(home: Home) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with subprocess.Popen([*COMMAND, "up"], env=home.environment, stdout=write_fd, stderr=subprocess.PIPE) as up:
        os.close(write_fd)
        try:
            eventually_sync(lambda: (home.path / "endpoint.json").exists() and home.is_ready(), 30)
            up.terminate()
            _, errors = up.communicate(timeout=30)
        finally:
            up.kill()
    assert (up.returncode, errors) == (0, b"")


def test_another_loopback_address_becomes_ready(home: Home) -> None:
    url = home.up("--host", "127.0.0.2")["url"]
    assert url.startswith("http://127.0.0.2:")
    assert home.is_ready()


@pytest.mark.parametrize("command", ["up", "api", "demo"])
def test_a_misspelt_variable_exits_with_2_and_is_named(home: Home, command: str) -> None:
    result = home.run(command, "--json", OUTLIVE_API_PORT="1")
    assert result.returncode == 2
    assert "OUTLIVE_API_PORT" in result.stderr
    assert json.loads(result.stdout)["code"] == "settings.invalid"
    assert not home.path.exists()
