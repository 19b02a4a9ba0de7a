"""A crash point kills as a power cut would, when it is armed and not before."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.base import CrashPoint

_VISITS = """
import atexit
from outlive.base import CrashPoint, reach
atexit.register(lambda: print("cleaned up", flush=True))
try:
    for visit in range(1, 5):
        reach(CrashPoint.LOG_AFTER_COMMIT)
        reach(CrashPoint.LOG_BEFORE_COMMIT)
        print(visit, flush=True)
finally:
    print("last word", flush=True)
"""


def run(armed: str | None) -> tuple[int, list[str]]:
    environment = {name: value for name, value in os.environ.items() if name != "OUTLIVE_CRASH_AT"}
    if armed is not None:
        environment["OUTLIVE_CRASH_AT"] = armed
    done = subprocess.run([sys.executable, "-c", _VISITS], env=environment, capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    return done.returncode, done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("armed", [None, "", "blob.before_put", "no.such_point", "log.before_commit:5"])
def test_a_point_that_is_not_armed_or_not_reached_does_nothing(armed: str | None) -> None:
    assert run(armed) == (0, ["1", "2", "3", "4", "last word", "cleaned up"])


@pytest.mark.parametrize(
    ("armed", "visit"), [("log.before_commit", 1), ("log.before_commit:1", 1), ("log.before_commit:3", 3)]
)
def test_an_armed_point_kills_at_its_visit_without_a_last_word(armed: str, visit: int) -> None:
    code, lines = run(armed)
    assert code == -signal.SIGKILL
    assert lines == [str(number) for number in range(1, visit)]


def test_a_file_in_the_folder_kills_once_whoever_comes_there_first(tmp_path: Path) -> None:
    (tmp_path / "log.before_commit").touch()
    environment = {**os.environ, "OUTLIVE_CRASH_FOLDER": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", _VISITS], env=environment, capture_output=True, text=True, timeout=30)
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [-signal.SIGKILL, 0]
    assert list(tmp_path.iterdir()) == []


def test_the_names_of_points_are_two_words_and_none_comes_twice() -> None:
    names = [point.value for point in CrashPoint]
    assert len(set(names)) == len(names)
    for point in CrashPoint:
        part, _, place = point.value.partition(".")
        assert point.name == f"{part}_{place}".upper()
