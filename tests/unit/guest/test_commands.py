"""The ledger of commands, in this process: full is said, and forgetting makes room."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from outlive.guest import commands as module
from outlive.guest.commands import Commands, Wish
from outlive.guest.loop import Loop
from outlive.guest.refusal import RefusalError
from outlive.guest.spawn import Program, environment
from outlive.guest.users import User

ME = User("me", os.getuid(), os.getgid(), (), "/", "/bin/sh")


def wish(*argv: str) -> Wish:
    return Wish(Program(argv, environment(ME), "/", ME), timeout_s=60, output_limit=1000, has_stdin=False)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setattr(module, "ENTRY_LIMIT", 2)
    return Commands(Loop())


def finish(ledger: Commands) -> None:
    """Reap what runs, as the guest does."""
    for pid in list(ledger.pids):
        ledger.reaped(*os.waitpid(pid, 0))


def test_a_full_ledger_says_so_and_starts_nothing(ledger: Commands) -> None:
    ledger.start("a", wish("true"))
    ledger.start("b", wish("false"))
    with pytest.raises(RefusalError) as refused:
        ledger.start("c", wish("true"))
    assert (refused.value.kind, refused.value.code) == ("exhausted", "machine.ledger_full")
    finish(ledger)
    assert ledger.summary() == {"running": 0, "exited": 2}
    ledger.forget("a")
    ledger.start("c", wish("true"))
    finish(ledger)
    assert [entry["effect"] for entry in ledger.page("", 10)] == ["b", "c"]
    assert [entry["effect"] for entry in ledger.page("b", 10)] == ["c"]


def test_a_command_that_did_not_start_takes_no_place_and_leaves_no_descriptor(ledger: Commands) -> None:
    gc.collect()  # what tests before this one left open would be closed in the middle of it
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(RefusalError, match="did not start"):
            ledger.start("a", wish("/no/such/program"))
    assert len(os.listdir("/proc/self/fd")) == before
    assert ledger.summary() == {"running": 0, "exited": 0}


def test_the_exit_says_what_came_and_how_it_ended(ledger: Commands) -> None:
    entry = ledger.start("a", wish("sh", "-c", "printf 12345; printf 12 >&2; kill -9 $$"))
    finish(ledger)
    assert entry.exit is not None
    assert {name: entry.exit[name] for name in ("reason", "code", "signal", "stdout", "stderr")} == {
        "reason": "signal",
        "code": None,
        "signal": 9,
        "stdout": 5,
        "stderr": 2,
    }


_LATE = """
import os, signal, sys
group = os.getpid()
if os.fork() == 0:
    os.setpgid(0, 0)
    with open(f"{sys.argv[1]}/alive", "w") as alive:
        open(f"{sys.argv[1]}/go").close()
        os.setpgid(0, group)
        print("joined", file=alive, flush=True)
        signal.pause()
signal.pause()
"""


def test_who_is_in_the_group_only_after_it_was_killed_is_ended_too(tmp_path: Path) -> None:
    """As a process that is being born while gVisor kills its group: a fork bomb would go on by it."""
    for name in ("alive", "go"):
        os.mkfifo(tmp_path / name)
    loop = Loop()
    entry = Commands(loop).start("a", wish(sys.executable, "-c", _LATE, str(tmp_path)))
    with open(tmp_path / "alive", "rb", buffering=0) as alive:
        entry.kill(signal.SIGKILL)
        os.waitid(os.P_PID, entry.pid, os.WEXITED | os.WNOWAIT)
        open(tmp_path / "go", "w").close()
        assert alive.read(7) == b"joined\n"
        loop.watch(alive.fileno(), read=loop.stop)
        loop.after(20, loop.stop)
        loop.run()
        os.set_blocking(alive.fileno(), False)
        try:
            assert alive.read(1) == b"", "it is over"
        finally:
            os.killpg(entry.pid, signal.SIGKILL)
            os.waitpid(entry.pid, 0)
            loop.forget(alive.fileno())
