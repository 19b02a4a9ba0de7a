"""The files door against paths that try to leave the machine, and checkpoints of files that would harm a host."""

import stat
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from leaks import nothing_is_left
from machine_rooms import SMALL, MachineRoom, open_machine_room
from outlive.base import InvalidError, OutliveError, new_machine_id
from outlive.machine.node.door import NodeDoor
from outlive.machine.spec import User
from outlive.machine.status import Machine

pytestmark = pytest.mark.anyio

_OF_THE_HOST = "a secret of the host"


class _Files:
    """The files of one machine, through the door of its node."""

    def __init__(self, room: MachineRoom, machine: Machine) -> None:
        self._door = NodeDoor(room.node_of(machine))
        self._at = (machine.id, machine.generation)

    async def read(self, path: str) -> bytes:
        async with self._door.read_file(*self._at, path) as content:
            return b"".join([data async for data in content])

    async def write(self, path: str, content: bytes = b"x", mode: int | None = None) -> int:
        async def pieces() -> AsyncIterator[bytes]:
            yield content

        return await self._door.write_file(*self._at, path, pieces(), mode=mode)

    async def delete(self, path: str) -> None:
        await self._door.delete_file(*self._at, path, recursive=True)

    async def names(self, path: str) -> list[str]:
        return [entry.name for entry in await self._door.list_files(*self._at, path)]


async def _refused(doing: Awaitable[object]) -> None:
    with pytest.raises(OutliveError):
        raise AssertionError(f"it was done: {await doing!r}")


@pytest.mark.parametrize("user", ["agent", "root"])
async def test_no_path_leads_out_of_the_machine(tmp_path: Path, user: User) -> None:
    secret = tmp_path / "secret"
    secret.write_text(_OF_THE_HOST)
    home = tmp_path / "room"
    home.mkdir()
    async with open_machine_room(home) as room, room.node():
        machine = await room.create(SMALL.model_copy(update={"user": user}))
        files = _Files(room, machine)
        links = {
            "to-the-host": str(secret),
            "up": "../" * 40 + str(secret)[1:],
            "by-pid-1": f"/proc/1/root{secret}",
            "by-cwd": f"/proc/1/cwd/../../..{secret}",
            "by-runtime": f"/.outlive/../../..{secret}",
            "by-sockets": f"/run/outlive/../../..{secret}",
            "loop": "loop",
        }
        made = "; ".join(f"ln -s '{target}' {name}" for name, target in links.items())
        await room.exec(machine.id, f"{made}; mkfifo pipe; ln -s / top; ln -s /run/outlive sockets")
        odd_places = ("a" * 300, "a/" * 3000, "pipe", "/dev/zero", "/workspace")
        for path in (*links, *links.values(), f"top{secret}", *odd_places):
            await _refused(files.read(path))
        for path in ("/.outlive/x", "/run/outlive/x", "/run/outlive/ctl.sock", "sockets/egress.sock", "/proc/x"):
            await _refused(files.write(path))
        for path in ("/.outlive", "/run/outlive", "/run/outlive/ctl.sock", "/proc/1"):
            await _refused(files.delete(path))
        for path in ("", "a\0b"):
            with pytest.raises(InvalidError):
                await files.read(path)
        # A write through a link goes where the link leads: in the machine.
        written = await room.exec(machine.id, f"mkdir -p {secret.parent} 2>&1", user="root")
        assert written.exit_code == 0
        await room.exec(machine.id, f"chmod 777 {secret.parent}", user="root")
        await files.write("to-the-host", b"of the machine")
        assert await files.read(str(secret)) == b"of the machine"
        assert secret.read_text() == _OF_THE_HOST
        odd = ["new\nline", "-rf", " ", "\udcff", "ü"]
        for name in odd:
            await files.write(f"odd/{name}")
        assert sorted(await files.names("odd")) == sorted(odd)
        assert sorted(path.name for path in (home / "a" / "machines").iterdir()) == [machine.id]
        assert (await room.exec(machine.id, "echo well")).stdout == "well\n"


_HARMFUL = """
set -e
cd /workspace
cp /bin/sh shell; chmod 6755 shell
echo two names > one; chmod 000 one; ln one two
ln -s /etc/passwd link; ln -s ../../../../../../etc/shadow up
mkfifo pipe
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
mkdir 'odd
name' -- -rf; echo x > ./-rf/x
rm -r /usr/share/doc /srv; mkdir /srv; echo new > /srv/new
for device in 'b 7 0' 'c 1 1' 'c 10 237' 'c 0 0'; do mknod device $device 2>/dev/null && echo made; done; true
"""
_LOOK = """
cd /workspace
stat -c '%n %F %h %a %u' shell one two link up pipe sock
readlink link up; ls -b; ls -A /srv; test -e /usr/share/doc && echo back; cat one
"""


async def test_files_that_would_harm_a_host_come_back_in_the_machine_and_nowhere_else(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create(SMALL.model_copy(update={"user": "root"}))
        made = await room.exec(machine.id, _HARMFUL)
        assert (made.exit_code, made.stdout) == (0, ""), "and no device was made"
        before = (await room.exec(machine.id, _LOOK)).stdout
        assert "shell regular file 1 6755 0" in before
        assert "one regular file 2 0 0" in before

        [child] = await room.keeper.fork(machine.id, [new_machine_id()], owner=machine.owner)
        assert (await room.exec(child.id, _LOOK)).stdout == before
        for one in (machine, child):
            # Nobody else on the host comes near a file that would make him root.
            path = node.residents.get(one.id, one.generation).sandbox.path
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        await room.keeper.do(child.id, "delete")

        await room.keeper.do(machine.id, "hibernate")
        await nothing_is_left(tmp_path / "a", room.cgroup("a"))
        kept = [path for path in (tmp_path / "objects").rglob("*") if not path.is_dir()]
        assert kept
        assert all(path.is_file() and not path.stat().st_mode & 0o7000 for path in kept)
        assert (await room.exec(machine.id, _LOOK)).stdout == before
        # Who is not root does not become root by it.
        became = await room.exec(machine.id, "./shell -p -c 'id -u'", user="agent")
        assert became.stdout == "1000\n"
