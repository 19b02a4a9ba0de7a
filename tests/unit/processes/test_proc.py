"""A process is known by its pid and its start; a stranger with the same pid is left alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from eventually import eventually_sync
from outlive.processes import proc


def _sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


def test_we_are_alive_and_have_been_for_a_while() -> None:
    me = proc.find(os.getpid())
    assert me is not None
    assert proc.is_alive(me)
    assert 0 <= proc.uptime_s(me) < 86_400


def test_a_pid_that_was_used_again_is_somebody_else() -> None:
    with _sleeper() as child:
        found = proc.find(child.pid)
        assert found is not None
        stranger = found._replace(started=found.started - 1)
        assert not proc.is_alive(stranger)
        assert not proc.send(stranger, signal.SIGKILL)
        assert proc.end([stranger], grace_s=1.0) == []
        assert not proc.is_alive(found._replace(boot="another boot"))
        assert child.poll() is None
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(10) == 0


def test_one_that_ended_but_was_not_collected_is_gone() -> None:
    with _sleeper() as child:
        found = proc.find(child.pid)
        assert found is not None
        assert proc.end([found], grace_s=10.0) == [found]
        assert not proc.is_alive(found)  # still a zombie here: nobody has waited for it
        assert not proc.send(found, signal.SIGTERM)
        assert child.wait(10) == -signal.SIGTERM


def test_one_whose_first_thread_ended_is_alive_until_its_last_has() -> None:
    code = (
        "import ctypes, sys, threading; threading.Thread(target=sys.stdin.read).start();"
        "print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        eventually_sync(lambda: ") Z " in Path(f"/proc/{child.pid}/stat").read_text())
        found = proc.find(child.pid)
        assert found is not None
        assert proc.is_alive(found)
        assert proc.send(found, signal.SIGKILL)
        assert proc.wait_gone([found], 10.0)


def test_one_that_ignores_the_polite_signal_is_killed() -> None:
    code = "import signal,sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = proc.find(child.pid)
        assert found is not None
        assert proc.end([found], grace_s=0.1) == [found]
        assert child.wait(10) == -signal.SIGKILL


def test_a_program_with_an_odd_name_is_read_right(tmp_path: object) -> None:
    code = "open('/proc/self/comm', 'w').write('a) Z (b'); print(flush=True); import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = proc.find(child.pid)
        assert found is not None
        assert proc.is_alive(found)
        child.kill()
    eventually_sync(lambda: not proc.is_alive(found))


def test_nobody_has_a_pid_beyond_the_last() -> None:
    assert proc.find(2**22 + 1) is None
