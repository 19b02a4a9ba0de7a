"""Crashes at the points of the start, and a process that cannot live."""

import json

import pytest

from integration.stack.homes import Home
from outlive.base import CrashPoint
from outlive.processes.proc import is_alive

FEW = {"OUTLIVE_SUPERVISOR__RESTARTS": "1", "OUTLIVE_SUPERVISOR__FIRST_DELAY_S": "0.01"}


@pytest.mark.parametrize("point", [CrashPoint.ENDPOINT_BEFORE_RENAME, CrashPoint.MIGRATE_BEFORE_COMMIT])
def test_an_api_that_died_at_its_start_starts_the_next_time(home: Home, point: CrashPoint) -> None:
    died = home.run("api", OUTLIVE_CRASH_AT=point)
    assert died.returncode == -9
    assert (home.path / "endpoint.json").exists() == (point is CrashPoint.MIGRATE_BEFORE_COMMIT)
    home.up()
    home.create("after")
    assert home.titles() == ["after"]


def test_an_api_that_keeps_dying_ends_everything_with_a_last_word(home: Home) -> None:
    result = home.run("up", **FEW, OUTLIVE_CRASH_AT=CrashPoint.ENDPOINT_BEFORE_RENAME)  # only the API comes there
    assert result.returncode == 1
    assert result.stdout.count("api started") == 2
    assert "api is not started again: it died 2 times within 60 s (last: killed by SIGKILL)" in result.stderr
    assert "api.log" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (home.path / "run" / "supervisor.json").exists()


def test_detached_up_says_why_it_failed_and_leaves_nothing_running(home: Home) -> None:
    away = {"OUTLIVE_DATABASE__URL": "postgresql://somebody:password-of-mine@127.0.0.1:1/none"}
    result = home.run("up", "--detach", "--json", **FEW, **away)
    assert result.returncode == 1
    problem = json.loads(result.stdout)
    assert (problem["kind"], problem["code"]) == ("broken", "stack.keeps_dying")
    assert "error: " in problem["detail"]  # the last lines of the log are in it
    assert "Traceback" not in problem["detail"]
    assert "password-of-mine" not in result.stdout + result.stderr
    assert not (home.path / "run" / "supervisor.json").exists()
    assert not (home.path / "run" / "feed.sock").exists()
    doctor = home.run("doctor", "--json", **away)
    assert doctor.returncode == 1
    [finding] = [each for each in json.loads(doctor.stdout)["findings"] if each["level"] == "fail"]
    assert finding["name"] == "database"
    assert finding["mend"]


def test_what_cannot_work_is_not_tried_again(home: Home) -> None:
    result = home.run("up", OUTLIVE_OBJECTS__URL="s3://")
    assert result.returncode == 1
    assert result.stdout.count("api started") == 1
    assert "told something it cannot work with" in result.stderr


def test_processes_killed_during_their_start_are_no_reason_to_give_up(home: Home) -> None:
    # Each second commit of the migrations kills whoever makes it, API or worker; the next one finds the rest to do;
    # after that there is nothing left that could kill.
    home.up(OUTLIVE_SUPERVISOR__RESTARTS="9", OUTLIVE_CRASH_AT=f"{CrashPoint.MIGRATE_BEFORE_COMMIT}:2")
    assert all(is_alive(process) for process in home.processes())
    assert "died (killed by SIGKILL)" in (home.path / "logs" / "up.log").read_text()


def test_a_damaged_database_is_told_in_a_sentence_and_left_as_it_is(home: Home) -> None:
    damaged = home.path / "damaged.db"
    damaged.parent.mkdir(mode=0o700)
    damaged.write_bytes(b"this is no database, " * 100)
    result = home.run("api", OUTLIVE_DATABASE__URL=f"sqlite:{damaged}")
    assert result.returncode == 1
    assert "error: The database is damaged" in result.stderr
    assert "Traceback" not in result.stderr
    assert damaged.read_bytes() == b"this is no database, " * 100
