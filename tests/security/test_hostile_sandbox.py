"""What a hostile machine does to its host and to its neighbours: nothing. Each attack is run for real, from inside.

The attacker is PID 1 itself, root in its sandbox: whatever a program in a machine could be.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eventually import eventually
from leaks import assert_nothing_left
from outlive.machine.backends.gvisor import open_gvisor_sandboxes
from outlive.machine.sandbox import Sandbox
from outlive.machine.spec import Limits
from outlive.testing.sandboxes import Trial
from outlive.testing.standin import make_base

pytestmark = pytest.mark.anyio

TIGHT = Limits(memory_mib=192, cpus=1, threads=400, processes=64, disk_mib=64)


@pytest.fixture
async def trial(tmp_path: Path) -> AsyncIterator[Trial]:
    cgroup = f"outlive-test/{os.getpid()}-hostile-{tmp_path.name}"
    sandboxes = open_gvisor_sandboxes(tmp_path / "node", cgroup)
    yield Trial(sandboxes, make_base(tmp_path / "base"))
    for sandbox in await sandboxes.find_all():
        await sandboxes.destroy(sandbox)
    assert_nothing_left(tmp_path / "node", cgroup)


async def attack(trial: Trial, program: str, limits: Limits = TIGHT) -> tuple[Sandbox, str]:
    """The attacker, and what it said; its neighbour, which was there before it, is well afterwards."""
    neighbour = await trial.started()
    await trial.ask(neighbour, "mark = 'as before'")
    attacker = await trial.started(trial.plan(limits=limits))
    said = await trial.ask(attacker, "if 1:" + program)
    assert await trial.ask(neighbour, "print(mark)") == "as before"
    await trial.sandboxes.destroy(neighbour)
    return attacker, said


async def test_a_memory_bomb_ends_its_own_machine_alone(trial: Trial) -> None:
    attacker, _ = await attack(
        trial,
        """
        taken = []
        while True:
            taken.append(bytearray(b"x") * (8 << 20))
        """,
    )

    async def is_dead() -> bool:
        return await trial.sandboxes.state(attacker) == "dead"

    await eventually(is_dead)


async def test_memory_taken_through_files_in_memory_is_counted_and_bounded(trial: Trial) -> None:
    attacker, said = await attack(
        trial,
        """
        for place in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
            with open(f"{place}/filler", "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * (1 << 20))
                except OSError as error:
                    print(place, error.errno, file.tell() >> 20)
        """,
    )
    assert said.split("\n") == ["/tmp 28 96", "/var/tmp 28 12", "/dev/shm 28 24", "/run 28 12"]
    assert (await trial.sandboxes.usage(attacker)).memory_bytes > 140 << 20
    assert await trial.ask(attacker, "print('alive')") == "alive"


async def test_a_full_disk_is_the_machines_own_and_not_the_hosts(trial: Trial, tmp_path: Path) -> None:
    attacker, said = await attack(
        trial,
        """
        import os
        with open("/workspace/filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * (1 << 20))
            except OSError as error:
                print(error.errno)
        made = 0
        try:
            while True:
                os.mkdir(f"/workspace/{made}")
                made += 1
        except OSError as error:
            print(error.errno)
        """,
    )
    assert said.split() == ["28", "28"]
    taken = (attacker.path / "disk.img").stat().st_blocks * 512
    assert taken <= TIGHT.disk_mib << 20
    await trial.ask(attacker, "os.remove('/workspace/filler'); open('/x', 'w').write('y')")
    assert await trial.ask(attacker, "print(open('/x').read())") == "y"


async def test_what_pid_1_prints_without_end_fills_its_own_disk_alone(trial: Trial, tmp_path: Path) -> None:
    attacker, said = await attack(
        trial,
        """
        import os
        written = 0
        try:
            while written < 1 << 30:
                written += os.write(1, b"x" * (1 << 16))
        except OSError as error:
            print(error.errno)
        """,
    )
    assert said == "28"
    outside = [path for path in attacker.path.iterdir() if path.name not in ("disk.img", "disk", "root")]
    assert sum(file.stat().st_size for folder in outside for file in (folder, *folder.rglob("*"))) < 1 << 20


_BOMB = """
        import os, time
        def bomb():
            made = 0
            try:
                while made < 5_000:
                    if os.fork() == 0:
                        os.closerange(0, 100)
                        time.sleep(1_000)
                        os._exit(0)
                    made += 1
            except OSError as error:
                return error.errno
            return made
"""


async def test_a_fork_bomb_ends_its_own_machine_at_worst(trial: Trial) -> None:
    attacker, _ = await attack(trial, _BOMB + "        bomb()\n")
    assert (await trial.sandboxes.usage(attacker)).threads <= TIGHT.threads
    assert await trial.sandboxes.state(attacker) in ("running", "dead")


async def test_a_fork_bomb_in_what_the_guest_runs_is_refused_and_the_machine_lives(trial: Trial) -> None:
    program = f"""
        group = "/sys/fs/cgroup/pids/commands"
        os.mkdir(group)
        open(group + "/pids.max", "w").write("{TIGHT.processes}")
        read, write = os.pipe()
        if os.fork() == 0:
            host.close()
            open(group + "/cgroup.procs", "w").write("0")
            os.setgid(1000)
            os.setuid(1000)
            end = bomb()
            try:
                open(group + "/pids.max", "w")
            except OSError as error:
                os.write(write, f"{{end}} {{error.errno}}".encode())
            os._exit(0)
        print(os.read(read, 100).decode())
    """
    # A process inside takes about 4 MiB of the host's memory, and two threads or three.
    roomy = TIGHT.model_copy(update={"memory_mib": 512, "threads": 2_000})
    attacker, said = await attack(trial, _BOMB + program, roomy)
    assert said == "11 13", "no more processes (EAGAIN), and no way for the user to allow them (EACCES)"
    assert await trial.ask(attacker, "print('alive')") == "alive"


async def test_the_sandbox_shows_nothing_of_the_host_and_has_no_way_out(trial: Trial, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    _, said = await attack(
        trial,
        f"""
        import os, socket
        print(sorted(name for _, name in socket.if_nameindex()))
        print(os.path.exists({str(tmp_path)!r}), os.path.exists("/proc/1/root" + {str(tmp_path)!r}))
        print(sorted(entry for entry in os.listdir("/proc") if entry.isdigit()))
        for attempt in (
            lambda: socket.create_connection(("1.1.1.1", 80), timeout=1),
            lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
            lambda: os.mknod("/workspace/device", 0o060666, os.makedev(254, 0)),
            lambda: open("/dev/kmsg"),
            lambda: os.chroot("/proc/1/root/../../.."),
        ):
            try:
                attempt()
                print("done", os.listdir("/"))
            except OSError as error:
                print("refused")
        """,
    )
    lines = said.split("\n")
    assert lines[:3] == ["['lo']", "False False", "['1']"]
    assert lines[3:7] == ["refused"] * 4
    assert "secret" not in lines[7]
