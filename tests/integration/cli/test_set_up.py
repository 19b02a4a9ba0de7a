"""What the scripts of this repository say: colours for people who look, and for nobody else."""

import fcntl
import os
import pty
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


def first_line(folder: Path, script: str, stderr: int, reads: int, **environment: str) -> bytes:
    """Of a copy that comes no further: `setup` waits for the lock that we hold, and `check` has no `ruff`."""
    (folder / "scripts").mkdir(exist_ok=True)
    copied = shutil.copy(SCRIPTS / script, folder / "scripts" / script)
    with (folder / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        running = subprocess.Popen([copied, "run"], stderr=stderr, env={**clean, **environment}, start_new_session=True)
        os.close(stderr)
        try:
            said = b""
            with suppress(OSError):  # a terminal that nobody has any more
                while b"\n" not in said and (more := os.read(reads, 1024)):
                    said += more
            return said.splitlines()[0]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, 9)
            running.wait(10)
            os.close(reads)


@pytest.mark.parametrize("script", ["setup", "check"])
def test_colours_are_for_a_terminal_that_wants_them(tmp_path: Path, script: str) -> None:
    reads, writes = os.pipe()
    assert first_line(tmp_path, script, writes, reads).startswith(f"[{script}] ".encode())
    master, slave = pty.openpty()
    assert first_line(tmp_path, script, slave, master).startswith(f"\x1b[2m[{script}]\x1b[0m ".encode())
    master, slave = pty.openpty()
    assert first_line(tmp_path, script, slave, master, NO_COLOR="1").startswith(f"[{script}] ".encode())
