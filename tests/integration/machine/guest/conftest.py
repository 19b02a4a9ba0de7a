"""A real guest as an ordinary process, over a real socket: fast, and all but PID 1."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import outlive.guest
from integration.machine.guest.greeting import StartGuest, welcome
from outlive.machine.guest_link import SOCKET, Guest, GuestDoor, open_door
from outlive.processes import proc


@pytest.fixture
def workspace() -> Iterator[Path]:
    """Where commands run. They run as another user, who may not enter pytest's own directories."""
    with tempfile.TemporaryDirectory(prefix="outlive-guest-") as name:
        place = Path(name)
        place.chmod(0o777)
        yield place
        left = _running_in(place)  # a shell whose guest is gone would write its history while this is removed
        for process in left:
            proc.send(process, signal.SIGKILL)
        assert proc.wait_gone(left, 10)


def _running_in(place: Path) -> list[proc.Process]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        process = proc.find(int(pid))
        try:
            is_there = Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(place)
        except OSError:
            continue  # gone while we looked
        if process and is_there:
            found.append(process)
    return found


@pytest.fixture
def sockets(tmp_path: Path) -> Path:
    place = tmp_path / "sockets"
    place.mkdir()
    return place


@pytest.fixture(scope="session")
def program() -> Iterator[Path]:
    """The guest alone, as it is in a machine, where whoever it runs commands for can read what it hands them: a clone
    may be in a directory that only its owner enters."""
    with tempfile.TemporaryDirectory(prefix="outlive-guest-") as name:
        place = Path(name)
        place.chmod(0o755)
        shutil.copytree(Path(outlive.guest.__file__).parent, place / "outlive" / "guest")
        (place / "outlive" / "__init__.py").touch()
        yield place


@pytest.fixture
def start_guest(program: Path, workspace: Path, sockets: Path) -> Iterator[StartGuest]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "outlive.guest", "--relay-port=0", f"--socket={sockets / SOCKET}"]
        argv += [f"--egress={sockets / 'egress.sock'}", f"--workspace={workspace}", *options]
        env = {"PYTHONPATH": str(program)}
        started.append(subprocess.Popen(argv, env=env, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(10)


@pytest.fixture
async def door(sockets: Path) -> AsyncIterator[GuestDoor]:
    async with open_door(sockets, welcome()) as opened:
        yield opened


@pytest.fixture
async def guest(door: GuestDoor, start_guest: StartGuest) -> Guest:
    start_guest()
    return await door.guest(10)
