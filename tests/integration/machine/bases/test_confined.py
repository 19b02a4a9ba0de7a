"""A confined program leaves nothing behind, however it ends: by itself, too slow, or with its caller killed."""

import signal
import subprocess
import sys
from pathlib import Path

from eventually import eventually_sync
from integration.machine.bases.archives import nothing
from outlive.machine.backends.bases.confined import run_confined
from outlive.machine.backends.bases.tree_cache import mounts_below

CONFINING = Path(__file__).with_name("confining.py")
WITHIN_S = 30.0


def naming(text: str) -> list[str]:
    """The processes that have `text` among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in line:
            found.append(line)
    return found


def test_a_killed_caller_takes_the_program_its_children_and_its_mounts_along(tmp_path: Path) -> None:
    argv = [sys.executable, str(CONFINING), str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as caller:
        try:
            assert caller.stdout
            assert caller.stdout.readline() == "here\n"
            assert mounts_below(tmp_path) == [], "it mounts where only it can see it"
            assert len(naming(str(tmp_path))) > 1
        finally:
            caller.send_signal(signal.SIGKILL)
        caller.wait(WITHIN_S)
    eventually_sync(lambda: naming(str(tmp_path)) == [], WITHIN_S)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    argv = ["/bin/sh", "-c", "(sleep 1000; echo $0) & sleep 1000; echo $0", str(tmp_path)]
    assert run_confined(argv, {}, nothing, within_s=0.5) is None
    eventually_sync(lambda: naming(str(tmp_path)) == [], WITHIN_S)


def test_what_it_says_and_how_it_ends_is_passed_on() -> None:
    said: list[str] = []
    argv = ["/bin/sh", "-c", "echo one; echo $WORD >&2; exit 3"]
    assert run_confined(argv, {"WORD": "two"}, said.append, within_s=WITHIN_S) == 3
    assert said == ["one", "two"]
