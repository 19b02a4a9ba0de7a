"""`python -m bench` runs every benchmark, writes what it found, and leaves nothing behind, however it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from eventually import eventually_sync

ROOT = Path(__file__).parents[3]
# Each bench of machines, terminals and turns starts a stack of its own: a few stand for all here, `make bench
# ARGS=--quick` runs all.
SECTIONS = ["appends", "catch-up", "latency", "terminals-echo", "loop-turn"]


class Run:
    """One bench as a process of its own, with a folder for temporary files that is its alone."""

    def __init__(self, folder: Path) -> None:
        self.temporary = folder / "t"
        self.out = folder / "out"
        self._log = folder / "log"
        self.temporary.mkdir()
        for path in (folder, self.temporary):
            path.chmod(0o755)  # PostgreSQL runs as a user of its own and has to get in

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "bench", "--out", str(self.out), *arguments],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self.temporary), "OUTLIVE_HOME": "/nonexistent"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._log.read_text()

    def left_over(self) -> list[str]:
        """Files, and processes that were told of this folder."""
        told = f"TMPDIR={self.temporary}".encode()
        found = [str(path) for path in self.temporary.iterdir()]
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if told in path.read_bytes():
                    found.append(str(path))
            except OSError:  # it ended just now, or is another user's
                continue
        return found


@pytest.fixture
def run() -> Iterator[Run]:
    folder = Path(tempfile.mkdtemp(prefix="b-", dir="/tmp"))  # short: sockets are made in there
    try:
        yield Run(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sections_of(run: Run) -> dict[str, Any]:
    found = json.loads((run.out / "results.json").read_text())
    return {section["name"]: section for section in found["sections"]}


@pytest.mark.timeout(620)
def test_a_quick_bench_measures_everything_writes_it_down_and_leaves_nothing_behind(run: Run) -> None:
    bench = run.start("--quick", *(word for name in SECTIONS for word in ("--only", name)))
    assert bench.wait(timeout=600) == 0, run.said()
    sections = sections_of(run)
    assert list(sections) == SECTIONS
    for section in sections.values():
        assert section["skipped"] is None
        assert section["readings"]
        assert all(len(reading["rounds"]) == 1 for reading in section["readings"])
    ratios = {ratio["name"]: ratio for ratio in sections["appends"]["ratios"]}
    assert ratios["one writer / bare loop"]["median"] > 0
    assert ratios["one writer / bare loop"]["bound"] == "at least"
    table = (run.out / "results.md").read_text()
    assert "| **one writer / bare loop** |" in table
    for picture in run.out.glob("*.svg"):
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")
        assert picture.name in table
    eventually_sync(lambda: run.left_over() == [], within_s=20)


def test_a_bench_that_is_stopped_leaves_nothing_behind(run: Run) -> None:
    bench = run.start("--only", "fan-out")
    try:
        eventually_sync(lambda: "warming up: bare" in run.said() or bench.poll() is not None, within_s=90)
        assert bench.poll() is None, run.said()
        assert run.left_over(), "it works in its own folder, with processes of its own"
    finally:
        bench.send_signal(signal.SIGINT)
        code = bench.wait(timeout=60)
    assert code == 130, run.said()
    eventually_sync(lambda: run.left_over() == [], within_s=20)
    assert not run.out.exists()


def test_a_name_that_is_no_benchmark_is_refused(run: Run) -> None:
    bench = run.start("--only", "nothing")
    assert bench.wait(timeout=60) == 2
    assert "fan-out" in run.said()
