"""Whoever is in front of a terminal is ended whole: with and without a lookout, and nobody else."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlive.guest import foreground as module
from outlive.guest import tty
from outlive.guest.foreground import Foreground
from outlive.guest.groups import is_in_session
from outlive.guest.loop import Loop
from outlive.guest.pty import Terminal
from outlive.guest.spawn import Program, environment
from outlive.guest.tty import Size
from outlive.guest.users import User
from outlive.guest.wire import Words

ME = User("me", os.getuid(), os.getgid(), (), "/", "/bin/sh")

_SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def path(name):
    return f"{sys.argv[1]}/{name}"
def job():
    os.setpgid(0, 0)
    os.tcsetpgrp(0, group := os.getpid())
    if os.fork() == 0:
        signal.alarm(60)
        be_late(group)
"""

_THAT_MISSES = """
def be_late(group):
    os.setpgid(0, 0)
    with open(path("late"), "w") as late:
        open(path("go")).close()
        os.setpgid(0, group)
        print("joined", file=late, flush=True)
        signal.pause()
if os.fork() == 0:
    job()
    with open(path("job"), "w"):
        signal.pause()
signal.pause()
"""

_THAT_REAPS = """
def be_late(group):
    with open(path("late"), "w") as late:
        print(group, file=late, flush=True)
        signal.pause()
first = os.fork()
if first == 0:
    job()
    os._exit(0)
os.waitpid(first, 0)
os.tcsetpgrp(0, os.getpid())
open(path("job"), "w").close()
signal.pause()
"""


@contextmanager
def opened(loop: Loop, path: Path, program: str) -> Iterator[Terminal]:
    for name in ("late", "job", "go"):
        os.mkfifo(path / name)
    argv = (sys.executable, "-c", _SHELL + program, str(path))
    terminal = Terminal("t", Program(argv, environment(ME), "/", ME), Size(80, 24), loop)
    try:
        yield terminal
    finally:
        os.killpg(terminal.pid, signal.SIGKILL)
        terminal.waiters.append(lambda _: loop.stop())
        terminal.reaped(os.waitpid(terminal.pid, 0)[1])
        if terminal.exit is None:
            loop.run()


def is_over(loop: Loop, descriptor: int) -> bool:
    """Whether it comes to its end, while the guest does its work."""
    loop.watch(descriptor, read=loop.stop)
    deadline = loop.after(20, loop.stop)
    loop.run()
    loop.forget(descriptor)
    deadline.cancel()
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("is_blind", [False, True], ids=["as Linux", "as gVisor"])
def test_who_is_in_front_only_after_it_was_killed_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_blind: bool
) -> None:
    """As a process that is being born while gVisor kills its group: a fork bomb would go on by it."""
    monkeypatch.setattr(tty, "is_blind", lambda _: is_blind)
    loop = Loop()
    with opened(loop, tmp_path, _THAT_MISSES) as terminal:
        with open(tmp_path / "late", "rb", buffering=0) as late, open(tmp_path / "job", "rb") as job:
            terminal.kill(signal.SIGKILL)
            assert job.read() == b"", "it is dead"
            open(tmp_path / "go", "w").close()
            assert late.read(7) == b"joined\n"
            assert is_over(loop, late.fileno())
        assert terminal.exit is None, "what it was started by goes on"


def test_who_is_left_of_a_group_that_was_in_front_is_ended_when_the_shell_is_back(tmp_path: Path) -> None:
    loop = Loop()
    with (
        opened(loop, tmp_path, _THAT_REAPS) as terminal,
        open(tmp_path / "late", "rb", buffering=0) as late,
        open(tmp_path / "job", "rb") as job,
    ):
        group = int(late.read(20))
        assert job.read() == b"", "its first process is gone"
        assert not terminal.end_group(terminal.pid), "that is the shell's own"
        assert terminal.end_group(group)
        assert is_over(loop, late.fileno())


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """In a session of its own."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        yield process
        process.kill()


@contextmanager
def asked(loop: Loop, pid: int) -> Iterator[tuple[Foreground, socket.socket]]:
    """A terminal with whoever answers for its lookout."""
    ours, theirs = socket.socketpair()
    foreground = Foreground(loop, -1, pid, ours)
    with theirs:
        try:
            yield foreground, theirs
        finally:
            foreground.close()


def look(loop: Loop, foreground: Foreground) -> list[Words | None]:
    seen: list[Words | None] = []

    def see(group: Words | None) -> None:
        seen.append(group)
        loop.stop()

    foreground.look(see)
    return seen


def numbers(*groups: int) -> bytes:
    return b"".join(group.to_bytes(4) for group in groups)


def test_a_group_that_is_not_of_the_terminal_is_not_ended(stranger: "subprocess.Popen[bytes]") -> None:
    loop = Loop()
    with asked(loop, os.getsid(0)) as (foreground, lookout):
        foreground.kill(signal.SIGKILL)
        seen = look(loop, foreground)
        lookout.sendall(numbers(stranger.pid, 0))
        loop.run()
        assert seen == [None]
    assert stranger.stdin is not None
    assert stranger.stdout is not None
    stranger.stdin.write(b"alive\n")
    stranger.stdin.flush()
    assert stranger.stdout.readline() == b"alive\n"


def test_a_group_is_of_one_session(stranger: "subprocess.Popen[bytes]") -> None:
    assert is_in_session(stranger.pid, stranger.pid)
    for group in (0, 1, os.getpgrp(), 1 << 40):
        assert not is_in_session(group, stranger.pid)
    stranger.kill()
    stranger.wait()
    assert not is_in_session(stranger.pid, stranger.pid)


def test_a_late_answer_is_nobody_elses_and_who_was_killed_is_still_ended(
    monkeypatch: pytest.MonkeyPatch, stranger: "subprocess.Popen[bytes]"
) -> None:
    loop = Loop()
    with asked(loop, stranger.pid) as (foreground, lookout):
        monkeypatch.setattr(module, "_LOOK_S", 0.0)
        first = look(loop, foreground)
        foreground.kill(signal.SIGKILL)
        loop.run()
        assert first == [None], "it was given up"
        monkeypatch.setattr(module, "_LOOK_S", 60.0)
        second = look(loop, foreground)
        lookout.sendall(numbers(1 << 30, stranger.pid, (1 << 30) + 1))
        loop.run()
        assert second == [{"group": (1 << 30) + 1, "name": ""}]
        assert (first, stranger.wait(20)) == ([None], -signal.SIGKILL)
