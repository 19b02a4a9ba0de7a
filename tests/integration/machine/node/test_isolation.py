"""Nothing of the host and nothing of another machine is seen from inside, by either user. Looked for with canaries."""

import json
import os
import platform
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from machine_rooms import open_machine_room
from outlive.machine.spec import User

pytestmark = pytest.mark.anyio

_CANARY = "canary-d41b7e5c"
_ABSTRACT = f"\0{_CANARY}"

_LOOK = r"""
import ctypes, glob, json, os, socket, sys
canary, place, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
canary = canary[:6] + "-" + canary[6:]  # not on the command line, where it would find itself

def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""

def attempt(doing):
    try:
        doing()
        return "done"
    except OSError as error:
        return "refused"

def dial(family, address):
    with socket.socket(family) as one:
        one.settimeout(5)
        one.connect(address)

libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")

def use_device(mode, major, minor):
    for folder in ("/workspace", "/tmp", "/dev/shm"):  # in memory a node can be made; it leads nowhere
        path = f"{folder}/{mode}-{major}-{minor}-{os.getuid()}"
        try:
            os.mknod(path, mode, os.makedev(major, minor))
        except OSError:
            continue
        os.close(os.open(path, os.O_RDONLY))
        return
    raise OSError("no device was made")

proc = [path for name in ("environ", "cmdline", "maps", "mountinfo", "comm") for path in glob.glob(f"/proc/*/{name}")]
names = []
for top, folders, files in os.walk("/"):
    folders[:] = [one for one in folders if os.path.join(top, one) not in ("/proc", "/sys", "/usr", "/.outlive")]
    names += [os.path.join(top, one) for one in (*folders, *files) if canary in one]
print(json.dumps({
    "in proc": [path for path in proc if canary.encode() in read(path)],
    "in names": names,
    "in environment": [name for name, value in os.environ.items() if canary in name + value],
    "place": [os.path.exists(place), os.path.exists("/proc/1/root" + place), os.path.exists("/proc/self/root" + place)],
    "pid 1": sorted(line.split(b"=")[0].decode() for line in read("/proc/1/environ").split(b"\0") if line),
    "processes": sorted(int(one) for one in os.listdir("/proc") if one.isdigit()),
    "sockets": sorted(os.listdir("/run/outlive")) if os.access("/run/outlive", os.R_OK) else None,
    "kernel": os.uname().release,
    "interfaces": [name for _, name in socket.if_nameindex()],
    "routes": [line for line in read("/proc/net/route").decode().splitlines()[1:] if not line.startswith("lo")],
    "homes": {home: sorted(os.listdir(home)) for home in ("/root", "/home") if os.access(home, os.R_OK)},
    "shadow": read("/etc/shadow").decode(),
    "attempts": {
        "the abstract socket": attempt(lambda: dial(socket.AF_UNIX, "\0" + canary)),
        "the socket by its path": attempt(lambda: dial(socket.AF_UNIX, place + "/sock")),
        "the server on loopback": attempt(lambda: dial(socket.AF_INET, ("127.0.0.1", port))),
        "IPv6": attempt(lambda: dial(socket.AF_INET6, ("2606:4700:4700::1111", 80))),
        "names": attempt(lambda: socket.getaddrinfo("example.com", 80)),
        "the daemon of containers": attempt(lambda: dial(socket.AF_UNIX, "/var/run/docker.sock")),
        "UDP": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53))),
        "a raw socket": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
        "a packet socket": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)),
        "mount": attempt(lambda: call(165, b"tmpfs", b"/mnt", b"tmpfs", 0, None)),
        "bind mount": attempt(lambda: call(165, b"/run/outlive", b"/mnt", b"none", 4096, None)),
        "pivot_root": attempt(lambda: call(155, b"/mnt", b"/mnt")),
        "bpf": attempt(lambda: call(321, 0, None, 0)),
        "kernel module": attempt(lambda: call(175, None, 0, b"")),
        "kexec": attempt(lambda: call(246, 0, 0, None, 0)),
        "ports of the CPU": attempt(lambda: call(172, 3)),
        "the clock": attempt(lambda: call(227, 0, (ctypes.c_long * 2)(1, 1))),
        "a key of the kernel": attempt(lambda: call(248, b"user", b"k", b"v", 1, -3)),
        "perf": attempt(lambda: call(298, (ctypes.c_char * 128)(), 0, -1, -1, 0)),
        "userfaultfd": attempt(lambda: call(323, 0)),
        "handles": attempt(lambda: call(304, -100, None, 0)),
        **{str(device): attempt(lambda device=device: use_device(*device)) for device in (
            (0o60666, 7, 0), (0o60666, 254, 0), (0o20666, 1, 1), (0o20666, 10, 232), (0o20666, 10, 237),
        )},
        **{path: attempt(lambda path=path: open(path, "rb").read(1)) for path in (
            "/dev/kmsg", "/dev/mem", "/dev/kvm", "/dev/loop0", "/dev/sda", "/dev/vda", "/proc/kcore", "/proc/1/mem",
            "/sys/kernel/debug/x",
        )},
    },
}))
"""
_ONLY_FOR_AGENT = r"""
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def attempt(doing):
    try:
        doing()
        return "done"
    except OSError:
        return "refused"
def trace():
    if libc.ptrace(16, 1, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "")
print(attempt(lambda: socket.socket(socket.AF_UNIX).connect("/run/outlive/ctl.sock")))
print(attempt(trace))
print(attempt(lambda: os.kill(1, 9)))
print(attempt(lambda: os.setuid(0)))
print(attempt(lambda: open("/sys/fs/cgroup/pids/outlive/pids.max", "w")))
print(attempt(lambda: os.listdir("/root")))
print(attempt(lambda: open("/etc/shadow")))
"""


@contextmanager
def _canaries(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """On the host: a file, a variable of the node's environment, two sockets; says the port of a third."""
    monkeypatch.setenv("OUTLIVE_TEST_CANARY", _CANARY)
    (place / _CANARY).write_text(_CANARY)
    with ExitStack() as stack:
        for address in (_ABSTRACT, f"/proc/self/fd/{_open(stack, place)}/sock"):
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.bind(address)
            one.listen()
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield server.getsockname()[1]


def _open(stack: ExitStack, place: Path) -> int:
    descriptor = os.open(place, os.O_PATH | os.O_DIRECTORY)
    stack.callback(os.close, descriptor)
    return descriptor


def _check(found: dict[str, Any], user: User) -> None:
    assert (found["in proc"], found["in names"], found["in environment"]) == ([], [], [])
    assert found["place"] == [False, False, False]
    assert found["pid 1"] == ["HOME", "LANG", "PATH"], "which everybody in the machine may read"
    assert len(found["processes"]) <= 3, "PID 1, the command, and what looks"
    assert found["sockets"] == (None if user == "agent" else ["ctl.sock", "egress.sock"])
    assert found["kernel"] != platform.release()
    assert (found["interfaces"], found["routes"]) == (["lo"], [])
    assert found["homes"]["/home"] == ["agent"]
    hashes = [line.split(":")[1] for line in found["shadow"].splitlines()]
    assert all(hash in ("*", "!", "!*", "!!", "x") for hash in hashes)
    assert {name: said for name, said in found["attempts"].items() if said != "refused"} == {}


async def test_nothing_of_the_host_or_of_another_machine_is_seen_from_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, home = tmp_path / "place", tmp_path / "room"
    place.mkdir()
    home.mkdir()
    with _canaries(place, monkeypatch) as port:
        async with open_machine_room(home) as room, room.node():
            machine, other = await room.create(), await room.create()
            await room.exec(other.id, f"touch /workspace/{_CANARY} /tmp/{_CANARY} /dev/shm/{_CANARY} /run/{_CANARY}")
            await room.exec(other.id, f"exec -a {_CANARY} sleep 1000", background=True, env={"X": _CANARY})
            await room.exec(other.id, "nohup python3 -m http.server 8123 >/dev/null 2>&1 &")
            split = _CANARY.replace("-", "")
            for user in ("agent", "root"):
                command = f"exec python3 -c {shlex.quote(_LOOK)} {split} {place} {port}"
                done = await room.exec(machine.id, command, user=user)
                assert done.exit_code == 0, done.stderr
                _check(json.loads(done.stdout), user)
            done = await room.exec(machine.id, f"exec python3 -c {shlex.quote(_ONLY_FOR_AGENT)}")
            assert done.stdout == "refused\n" * 7, done.stderr
            assert await room.node_of(machine).residents.get(machine.id, machine.generation).door.guest(5)
